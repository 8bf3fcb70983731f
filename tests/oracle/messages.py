"""Random valid messages, each as the values `oracle` reads and as the JSON `haulage wire` prints."""

import json
from typing import NamedTuple


class Message(NamedTuple):
    """One message, twice."""

    name: str
    values: str
    json: str


def messages(seed, rounds):
    """Yields `rounds` messages of each kind; the same for the same seed, on every machine."""
    draw = Draw(seed)
    for _ in range(rounds):
        for draw_kind in KINDS:
            name, version, htype, members_drawn = draw_kind(draw)
            xid, credit = draw.word(), draw.word()
            values = [version, htype, xid, credit]
            members = {"xid": xid, "vers": version, "credit": credit}
            members["proc" if version == 1 else "htype"] = name
            for key, (value, described) in members_drawn:
                values += value
                members |= {key: described} if key else described
            text = " ".join(str(value) for value in values)
            yield Message(name, text, json.dumps(members, separators=(",", ":")))


class Draw:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    def below(self, bound):
        return self.next() % bound

    def word(self):
        """Small numbers and the ends of the range come often."""
        return [self.below(4), 2**32 - 1 - self.below(4), self.below(2**32), self.below(2**32)][self.below(4)]

    def octets(self, bound):
        return bytes(self.below(256) for _ in range(self.below(bound)))

    def some(self, element):
        """A few elements of an array."""
        return array(element(self) for _ in range(self.below(4)))

    def perhaps(self, element):
        """Optional data: 0 or 1 before its value."""
        if self.below(2) == 0:
            return [0], None
        values, described = element(self)
        return [1, *values], described


def array(elements):
    """Puts drawn elements together, their count before their values."""
    elements = list(elements)
    values = [value for values, _ in elements for value in values]
    return [len(elements), *values], [described for _, described in elements]


# Each of the following draws one thing, and returns its values and its description.


def word(draw):
    value = draw.word()
    return [value], value


def payload(draw):
    octets = draw.octets(40)
    return [octets.hex() or "-"], octets.hex()


def segment(draw):
    handle, length = draw.word(), draw.word() // 16
    # Short of the end of the address space.
    offset = min(draw.next() >> draw.below(64), 2**64 - 1 - length)
    # The command prints as strings what programs with doubles would change.
    shown = offset if offset < 2**53 else str(offset)
    return [handle, length, offset], {"handle": handle, "length": length, "offset": shown}


def write_chunk(draw):
    return draw.some(segment)


def writes(draw):
    return draw.some(write_chunk)


def reply(draw):
    return draw.perhaps(write_chunk)


def written_reply(draw):
    """Optional data that is there."""
    values, described = write_chunk(draw)
    return [1, *values], described


def read_list(positions):
    """Draws a Read list whose segments are at `positions`, as far as there are any."""

    def draw_list(draw):
        values, described = [], []
        for position in positions(draw):
            of_segment, segment_described = segment(draw)
            values += [position, *of_segment]
            described.append({"position": position} | segment_described)
        return [len(described), *values], described

    return draw_list


def ascending(draw):
    """[E5] chunks in order; segments of one chunk share its position."""
    steps = (draw.below(3) * 4 for _ in range(draw.below(4)))
    position = 4 * draw.below(2**20)
    return [position := position + step or 4 for step in steps]


reads = read_list(ascending)
call_chunk = read_list(lambda draw: [0] * (1 + draw.below(3)))
# Version 1 takes them in any order, with the RPC message among them.
v1_reads = read_list(lambda draw: [4 * draw.below(2**30) * draw.below(2) for _ in range(draw.below(4))])


def words_of(*keys):
    """Draws words, each a member of its own."""

    def draw_words(draw):
        drawn = [draw.word() for _ in keys]
        return drawn, dict(zip(keys, drawn))

    return draw_words


# The following describe a kind of message: what they return draws its name, version and header type, and
# its members. A member without a key brings its own.


def kind(name, version, htype, *members):
    return lambda draw: (name, version, htype, [(key, member(draw)) for key, member in members])


def error(message, version, name, code, *keys):
    """An error message, by the name and code of the error and the words behind it."""

    def arm(draw):
        values, described = words_of(*keys)(draw)
        return [code, *values], {"err": name} | described

    return kind(message, version, 4, ("", arm))


def call(name, htype, lists, *rest):
    """A Call: lists of segments, and in front of them a handle they hold, or zero."""

    def draw_call(draw):
        drawn = [(key, member(draw)) for key, member in lists]
        held = [0] + [handle for _, (_, described) in drawn for handle in handles(described)]
        inv_handle = held[draw.below(len(held))]
        drawn.insert(0, ("inv_handle", ([inv_handle], inv_handle)))
        return name, 2, htype, drawn + [(key, member(draw)) for key, member in rest]

    return draw_call


def handles(described):
    """Returns every handle in a description."""
    if isinstance(described, dict):
        return [described["handle"]]
    return [handle for part in described or [] for handle in handles(part)]


def property_of(which, draw_value):
    def draw_property(draw):
        value, octets = draw_value(draw)
        return [which, *value], {"which": which, "data": octets.hex()}

    return draw_property


def big_endian(*values):
    return b"".join(value.to_bytes(4, "big") for value in values)


def typed(draw_value):
    """Draws a value of a known type: 0 for its default, 1 before any other."""

    def draw_typed(draw):
        if draw.below(4) == 0:
            return [0], b""
        values = draw_value(draw)
        return [1, *values], big_endian(*values)

    return draw_typed


def one_word(draw):
    return [draw.word()]


def buffer_structure(draw):
    """A structure that makes sense: its length is that of its segments, its groups differ."""
    groups, length = [], 0
    for number in range(1 + draw.below(2)):
        count, size = 1 + draw.below(2), 1000 * number + 1 + draw.below(1000)
        groups += [count, size, 2 ** draw.below(12), draw.below(2)]
        length += count * size
    return [length, len(groups) // 4, *groups]


def opaque(draw):
    octets = draw.octets(12)
    return [octets.hex() or "-"], octets


def typed_opaque(draw):
    """Draws an opaque that is a value of a known type: its length and padding are within those of the property."""
    values, octets = opaque(draw)
    return [1, *values], big_endian(len(octets)) + octets + bytes(-len(octets) % 4)


# The draft's six, those of the extensions on their private code points (E10), and an unknown one.
PROPERTIES = [
    *(property_of(which, typed(one_word)) for which in [1, 2, 3, 4, 5]),
    property_of(6, typed_opaque),
    *(property_of(0x52540000 + which, typed(one_word)) for which in [3, 5, 6]),
    property_of(0x52540004, typed(buffer_structure)),
    property_of(0x52540007, opaque),
]


def properties(draw):
    return draw.some(lambda draw: PROPERTIES[draw.below(len(PROPERTIES))](draw))


def every_property(draw):
    return array(draw_property(draw) for draw_property in PROPERTIES)


def location(draw):
    kind = draw.below(4)
    if kind == 0:
        values, described = draw.some(segment)
        return [1, *values], {"type": "XMPTYPE_EXRW", "xmdl_ex": described}
    if kind == 1:
        offset, (values, described) = draw.word(), draw.some(word)
        members = {"type": "XMPTYPE_TBSN", "xmdl_offset": offset, "xmdl_bsnum": described}
        return [2, offset, *values], members
    return ([5], {"type": "XMPTYPE_TOOSHORT"}) if kind == 2 else ([6], {"type": "XMPTYPE_NOITEM"})


def item(draw):
    disp, length, (values, described) = draw.word(), draw.word(), location(draw)
    members = {"xmdmi_disp": disp, "xmdmi_length": length, "xmdmi_where": described}
    return [disp, length, *values], members


def response_item(draw):
    minlen, kind = draw.word(), draw.below(4)
    values, described = draw.some(segment)
    if kind == 0:
        values, place = [1, *values], {"type": "XMPTYPE_EXRW", "xmdrsdl_ex": described}
    elif kind == 1:
        values, place = [2], {"type": "XMPTYPE_TBSN"}
    elif kind == 2:
        values, place = [3, *values], {"type": "XMPTYPE_CHOICE", "xmdrsdl_ex": described}
    else:
        dsdov = draw.word()
        place = {"type": "XMPTYPE_BYSIZE", "xmdrsdl_dsdov": dsdov, "xmdrsdl_bsex": described}
        values = [4, dsdov, *values]
    return [minlen, *values], {"xmdrsdi_minlen": minlen, "xmdrsdi_loc": place}


def response_set(draw):
    begin, end, (values, described) = draw.word(), draw.word(), draw.some(response_item)
    extent = {"xmdrsdr_begin": begin, "xmdrsdr_end": end}
    return [begin, end, *values], {"xmdrsds_range": extent, "xmdrsds_items": described}


def items(draw):
    return draw.some(item)


def response_sets(draw):
    return draw.some(response_set)


def transmission(draw):
    xid, reply, seq = draw.word(), draw.below(2), draw.word()
    members = {"xmsi_xid": xid, "xmsi_dir": ["CALL", "REPLY"][reply], "xmsi_seq": seq}
    return [xid, reply, seq], members


def report(name, code, *keys):
    def info(draw):
        values, described = words_of(*keys)(draw)
        return [code, *values], {"optre_which": name} | described

    bad, lead = ("optre_bad", transmission), ("optre_lead", lambda draw: draw.perhaps(transmission))
    return kind("ROPT_REPTERR", 2, 0x52540004, bad, lead, ("optre_info", info))


LISTS = [("reads", reads), ("writes", writes), ("reply", reply)]
V1_LISTS = [("reads", v1_reads), ("writes", writes), ("reply", reply), ("payload", payload)]
EXPECTED = ["optri_expect", "optri_current"]
RANGE = ["optri_value", "optri_min", "optri_max"]

# Every header type, and every arm of every error.
KINDS = [
    kind("RDMA2_GRANT", 2, 5),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_VERS", 1, "vers_low", "vers_high"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_BAD_XDR", 2),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_BAD_PROPVAL", 3),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_INVAL_HTYPE", 4),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_INVAL_CONT", 5),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_READ_CHUNKS", 6, "max_chunks"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_WRITE_CHUNKS", 7, "max_chunks"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_SEGMENTS", 8, "max_segments"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_WRITE_RESOURCE", 9, "chunk_index", "length_needed"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_REPLY_RESOURCE", 10, "length_needed"),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_VERS_MISMATCH", 11),
    error("RDMA2_ERROR", 2, "RDMA2_ERR_SYSTEM", 100),
    kind("RDMA2_CONNPROP_MIDDLE", 2, 6, ("props", every_property)),
    kind("RDMA2_CONNPROP_FINAL", 2, 7, ("props", properties)),
    call("RDMA2_CALL_EXTERNAL", 8, [("call", call_chunk), *LISTS]),
    kind("RDMA2_CALL_MIDDLE", 2, 9, ("remaining", word), ("payload", payload)),
    call("RDMA2_CALL_INLINE", 10, LISTS, ("payload", payload)),
    kind("RDMA2_REPLY_EXTERNAL", 2, 11, ("writes", writes), ("reply", written_reply)),
    kind("RDMA2_REPLY_MIDDLE", 2, 12, ("remaining", word), ("payload", payload)),
    kind("RDMA2_REPLY_INLINE", 2, 13, ("writes", writes), ("payload", payload)),
    kind(
        "ROPT_XMTREQ",
        2,
        0x52540001,
        ("optxrq_dp", items),
        ("optxrq_rsd", response_sets),
        ("optxrq_count", word),
        ("optxrq_rsbuf", word),
        ("optxrq_pslen", word),
        ("payload", payload),
    ),
    kind(
        "ROPT_XMTRESP",
        2,
        0x52540002,
        ("optxrs_dp", items),
        ("optxrs_count", word),
        ("optxrs_pslen", word),
        ("payload", payload),
    ),
    kind(
        "ROPT_XMTCONT",
        2,
        0x52540003,
        ("optxc_xnum", word),
        ("optxc_itype", word),
        ("optxc_pslen", word),
        ("payload", payload),
    ),
    report("OPTRERR_BADHMT", 1, *EXPECTED),
    report("OPTRERR_BADOMT", 2, *EXPECTED),
    report("OPTRERR_BADCONT", 3),
    report("OPTRERR_BADSEQ", 4, *EXPECTED),
    report("OPTRERR_BADXID", 5, *EXPECTED),
    report("OPTRERR_BADOFF", 6, *RANGE),
    report("OPTRERR_BADTBSN", 7, *RANGE),
    report("OPTRERR_BADPL", 8, *RANGE),
    kind("RDMA_MSG", 1, 0, *V1_LISTS),
    kind("RDMA_NOMSG", 1, 1, *V1_LISTS),
    kind("RDMA_MSGP", 1, 2, ("align", word), ("thresh", word), *V1_LISTS),
    kind("RDMA_DONE", 1, 3),
    error("RDMA_ERROR", 1, "ERR_VERS", 1, "vers_low", "vers_high"),
    error("RDMA_ERROR", 1, "ERR_CHUNK", 2),
]
