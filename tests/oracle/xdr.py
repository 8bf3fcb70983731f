"""Takes the XDR out of the specifications and mends what keeps rpcgen from reading it.

Every edit names the reading it applies (`proto/READINGS.md`) and must find what it looks for, so that
a changed text is noticed. Nothing of a specification is kept in this repository.
"""

import re


def description(specifications):
    """Returns one description in XDR of everything that travels, from a directory of specifications."""
    v2 = (specifications / "rpcrdma-v2-draft-07.txt").read_text()
    extensions = (specifications / "rtrext-03.txt").read_text()
    v1 = (specifications / "rfc5666.txt").read_text()
    parts = [
        # E8: the types that all three use and none defines.
        "typedef unsigned int uint32;\ntypedef unsigned hyper uint64;",
        edit(marked(v2), V2_EDITS),
        edit(marked(extensions), RTREXT_EDITS),
        edit(between(v1, "4.3. XDR Language Description", "5. Long Messages"), V1_EDITS),
    ]
    return "\n".join(parts)


def marked(text):
    """Returns what stands behind the marks that both drafts put in front of their XDR."""
    lines = (re.match(r" *///(?: (.*))?$", line) for line in text.splitlines())
    code = "\n".join(line[1] or "" for line in lines if line)
    return re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)


def between(text, start, end):
    """Returns the indented or declaring lines of one section, which has no marks."""
    section = text[text.index("\n" + start) : text.index("\n" + end)]
    code = "\n".join(section.splitlines()[4:])
    return re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)


def edit(code, edits):
    for reading, times, pattern, replacement in edits:
        code, found = re.subn(pattern, replacement, code, flags=re.MULTILINE | re.DOTALL)
        if found != times:
            raise SystemExit(f"{found} instead of {times} places for: {reading}")
    return code


# What an edit does, in how many places, and how.
V2_EDITS = [
    (
        "E8: a property identifier is a word",
        1,
        r"typedef rpcrdma2_propid uint32;",
        "typedef uint32 rpcrdma2_propid;\ntypedef uint32 rpcrdma2_errcode;",
    ),
    (
        "E9: the first word of the RPC message is no field",
        4,
        r"uint32 +rdma_rpc_first_word;",
        "",
    ),
    (
        "RFC 4506 section 4.15: a name stands once in a union, so two cases share it",
        1,
        r"(case RDMA2_ERR_READ_CHUNKS:)\s+uint32 rdma_max_chunks;",
        r"\1",
    ),
]

RTREXT_EDITS = [
    ("RFC 4506 section 4.17: a constant has no type", 12, r"const uint32\b", "const"),
    ("E10: private code points", 8, r"(const +(?:ROPT|XPROP)_\w+ = )(\d)", r"\g<1>0x5254000\2"),
    ("E10: segments are version 2's", 3, r"rpcrdma1_segment", "rpcrdma2_segment"),
    ("E10: one value with two names", 1, r"XMPTYPE_CHOICE", "XMPTYPE_CHOOSE"),
    ("E10: unions open with a brace", 2, r"(switch\(xmdp_type type\))\s*$", r"\1 {"),
    (
        "E10: arms with several fields",
        1,
        r"xmdp_itemlen +xmdl_offset;\s+xmdp_tbsn +xmdl_bsnum<>;",
        "xmdp_loc_tbsn xmdl_tbsn;",
    ),
    (
        "E10: arms with several fields",
        1,
        r"xmdp_itemlen +xmdrsdl_dsdov;\s+rpcrdma2_segment +xmdrsdl_bsex<>;",
        "xmdp_rsdloc_bysize xmdrsdl_bysize;",
    ),
    (
        "E10: arms with several fields",
        1,
        r"uint32 +optri_expect;\s+uint32 +optri_current;",
        "optr_expected optri_expected;",
    ),
    (
        "E10: arms with several fields",
        1,
        r"uint32 +optri_value;\s+uint32 +optri_min;\s+uint32 +optri_max;",
        "optr_range optri_range;",
    ),
    (
        "E10: the structures those arms hold",
        1,
        r"union xmdp_loc ",
        "struct xmdp_loc_tbsn { xmdp_itemlen xmdl_offset; xmdp_tbsn xmdl_bsnum<>; };\n"
        "struct xmdp_rsdloc_bysize { xmdp_itemlen xmdrsdl_dsdov; rpcrdma2_segment xmdrsdl_bsex<>; };\n"
        "struct optr_expected { uint32 optri_expect; uint32 optri_current; };\n"
        "struct optr_range { uint32 optri_value; uint32 optri_min; uint32 optri_max; };\n"
        r"\g<0>",
    ),
    ("E10: a semicolon too few", 1, r"(OPTRERR_BADPL = 8\s*\})", r"\1;"),
    ("E10: a semicolon too many", 1, r"xmdp_pldisp; +optxc_pslen;", "xmdp_pldisp optxc_pslen;"),
    (
        "RFC 5531 section 9: the direction of an RPC message, which C has under another kind of name",
        1,
        r"struct xms_id (.*?)msg_type ",
        r"enum xms_dir { XMS_CALL = 0, XMS_REPLY = 1 };\nstruct xms_id \1xms_dir ",
    ),
]

V1_EDITS = [
    (
        "the copy of the text has lost the lines that close its declarations",
        13,
        r"^ *(?:struct|enum|union) [^;{]*\{$",
        r"};\n\g<0>",
    ),
    ("the same, at both ends", 2, r"\A\s*\};|\Z", lambda found: "" if found[0] else "};"),
    ("the same, of an arm", 1, r"case RDMA_DONE:", r"\g<0> void;"),
    (
        "RFC 4506 section 4.15: one declaration an arm",
        1,
        r"uint32 +rdma_vers_low;\s+uint32 +rdma_vers_high;",
        "rpc_rdma_vers rdma_range;",
    ),
    (
        "the structure that arm holds",
        1,
        r"union rpc_rdma_error ",
        r"struct rpc_rdma_vers { uint32 rdma_vers_low; uint32 rdma_vers_high; };\n\g<0>",
    ),
    ("RFC 8166 section 4.5: ERR_CHUNK carries nothing", 1, r"uint32 +rdma_extra\[8\];", "void;"),
    (
        "C declares before it uses",
        1,
        r"(struct rdma_msg \{.*?\};)(.*)(union rdma_body .*?\};)(.*)\Z",
        r"\2\4\n\3\n\1",
    ),
]
