/*
 * A second opinion on the wire formats: what rpcgen makes of the specifications' own XDR.
 *
 * Lines of standard input, one message each. `oracle encode` reads values and writes hex, `oracle decode`
 * the reverse; a message that rpcgen's code does not take whole is `refused`. Values stand in the order
 * in which the XDR declares them, with a blank between: words and double words in decimal, octets in hex
 * (`-` for none), arrays and lists behind their number of elements, optional data behind 0 or 1, the
 * payload last. A message starts with its version and header type, followed by XID and credit.
 *
 * One function a type gives and takes its values; it names every field, so a message whose fields are in
 * another order than ours does not agree. Nothing is freed: the program ends with its input.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

enum { MESSAGE_MAX = 1 << 16 };

/* Whether values are read from a line, or printed. */
static int taking;

static void fail(const char *why)
{
	fprintf(stderr, "oracle: %s\n", why);
	exit(1);
}

static void *room(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		fail("no memory");
	return memory;
}

static const char *token(void)
{
	const char *text = strtok(NULL, " \n");

	if (!text)
		fail("a line ends early");
	return text;
}

static void word(u_int *value)
{
	if (taking)
		*value = strtoul(token(), NULL, 10);
	else
		printf(" %u", *value);
}

static void hyper(uint64 *value)
{
	if (taking)
		*value = strtoull(token(), NULL, 10);
	else
		printf(" %llu", (unsigned long long)*value);
}

static u_int from_hex(const char *text, char *bytes)
{
	u_int length = strcmp(text, "-") ? strlen(text) / 2 : 0;

	for (u_int at = 0; at < length; at++) {
		unsigned byte;

		if (sscanf(text + 2 * at, "%2x", &byte) != 1)
			fail("not hex");
		bytes[at] = byte;
	}
	return length;
}

static void to_hex(const char *bytes, u_int length)
{
	for (u_int at = 0; at < length; at++)
		printf("%02x", (unsigned char)bytes[at]);
}

static void octets(char **bytes, u_int *length)
{
	if (taking) {
		const char *text = token();

		*bytes = room(strlen(text), 1);
		*length = from_hex(text, *bytes);
	} else {
		printf(*length ? " " : " -");
		to_hex(*bytes, *length);
	}
}

/* An enumeration travels as a word. */
#define ENUM(value) \
	do { \
		u_int number = (value); \
		word(&number); \
		(value) = number; \
	} while (0)

/* A counted array as rpcgen declares it: a length and a pointer, both named after the array. */
#define EACH(array, name, text) \
	do { \
		word(&(array).name##_len); \
		if (taking) \
			(array).name##_val = room((array).name##_len, sizeof(*(array).name##_val)); \
		for (u_int at = 0; at < (array).name##_len; at++) \
			text(&(array).name##_val[at]); \
	} while (0)

/* A linked list, behind its length. */
#define LIST(head, entry, next, text) \
	do { \
		u_int count = 0; \
		for (__typeof__(head) node = taking ? NULL : (head); node; node = node->next) \
			count++; \
		word(&count); \
		for (__typeof__(&(head)) node = &(head); count; count--, node = &(*node)->next) { \
			if (taking) \
				*node = room(1, sizeof(**node)); \
			text(&(*node)->entry); \
		} \
	} while (0)

#define OPTIONAL(pointer, text) \
	do { \
		u_int there = !taking && (pointer); \
		word(&there); \
		if (there && taking) \
			(pointer) = room(1, sizeof(*(pointer))); \
		if (there) \
			text(pointer); \
	} while (0)

/* Version 2. */

static void segment(rpcrdma2_segment *it)
{
	word(&it->rdma_handle);
	word(&it->rdma_length);
	hyper(&it->rdma_offset);
}

static void read_segment(rpcrdma2_read_segment *it)
{
	word(&it->rdma_position);
	segment(&it->rdma_target);
}

static void write_chunk(rpcrdma2_write_chunk *it)
{
	EACH(it->rdma_target, rdma_target, segment);
}

static void hdr_error(rpcrdma2_hdr_error *it)
{
	word(&it->rdma_err);
	switch (it->rdma_err) {
	case RDMA2_ERR_VERS:
		word(&it->rpcrdma2_hdr_error_u.rdma_vrange.rdma_vers_low);
		word(&it->rpcrdma2_hdr_error_u.rdma_vrange.rdma_vers_high);
		break;
	case RDMA2_ERR_READ_CHUNKS:
	case RDMA2_ERR_WRITE_CHUNKS:
		word(&it->rpcrdma2_hdr_error_u.rdma_max_chunks);
		break;
	case RDMA2_ERR_SEGMENTS:
		word(&it->rpcrdma2_hdr_error_u.rdma_max_segments);
		break;
	case RDMA2_ERR_WRITE_RESOURCE:
		word(&it->rpcrdma2_hdr_error_u.rdma_writeres.rdma_chunk_index);
		word(&it->rpcrdma2_hdr_error_u.rdma_writeres.rdma_length_needed);
		break;
	case RDMA2_ERR_REPLY_RESOURCE:
		word(&it->rpcrdma2_hdr_error_u.rdma_length_needed);
		break;
	}
}

static void buffer_segment(xmrbs_seg *it)
{
	word(&it->xmrseg_length);
	word(&it->xmrseg_align);
	word(&it->xmrseg_flags);
}

static void buffer_group(xmrbs_group *it)
{
	word(&it->xmrgrp_count);
	buffer_segment(&it->xmrgrp_info);
}

static void buffer(xpr_rbs *it)
{
	word(&it->xmrbuf_length);
	EACH(it->xmrbuf_groups, xmrbuf_groups, buffer_group);
}

/*
 * The value of a property, by its type: an XDR stream of its own within the octets that carry it. No
 * octets stand for the default; their value is 0, any other is behind 1.
 */
static void typed(rpcrdma2_propval *it, void (*text)(void *), xdrproc_t xdr, void *value)
{
	u_int given = it->rdma_data.rdma_data_len > 0;
	XDR stream;

	word(&given);
	if (!given)
		return;
	if (taking) {
		it->rdma_data.rdma_data_val = room(MESSAGE_MAX, 1);
		xdrmem_create(&stream, it->rdma_data.rdma_data_val, MESSAGE_MAX, XDR_ENCODE);
		text(value);
	} else {
		xdrmem_create(&stream, it->rdma_data.rdma_data_val, it->rdma_data.rdma_data_len, XDR_DECODE);
	}
	if (!xdr(&stream, value))
		fail("a property that is not of its type");
	if (taking)
		it->rdma_data.rdma_data_len = xdr_getpos(&stream);
	else
		text(value);
}

static void host_auth(rpcrdma2_prop_hostauth *it)
{
	octets(&it->rpcrdma2_prop_hostauth_val, &it->rpcrdma2_prop_hostauth_len);
}

static void property(rpcrdma2_propval *it)
{
	rpcrdma2_prop_hostauth message = { 0 };
	u_int number = 0;
	xpr_rbs structure = { 0 };

	word(&it->rdma_which);
	switch (it->rdma_which) {
	case RDMA2_PROPID_SBSIZ:
	case RDMA2_PROPID_RBSIZ:
	case RDMA2_PROPID_RSSIZ:
	case RDMA2_PROPID_RCSIZ:
	case RDMA2_PROPID_BRS:
	case XPROP_RTRSUPP:
	case XPROP_REQRXLIM:
	case XPROP_RESPSXLIM:
		typed(it, (void (*)(void *))word, (xdrproc_t)xdr_uint32, &number);
		break;
	case RDMA2_PROPID_HOSTAUTH:
		typed(it, (void (*)(void *))host_auth, (xdrproc_t)xdr_rpcrdma2_prop_hostauth, &message);
		break;
	case XPROP_RBSTRUCT:
		typed(it, (void (*)(void *))buffer, (xdrproc_t)xdr_xpr_rbs, &structure);
		break;
	default:
		octets(&it->rdma_data.rdma_data_val, &it->rdma_data.rdma_data_len);
	}
}

static void hdr_connprop(rpcrdma2_hdr_connprop *it)
{
	EACH(it->rdma_props, rpcrdma2_propset, property);
}

static void hdr_call_external(rpcrdma2_hdr_call_external *it)
{
	word(&it->rdma_inv_handle);
	LIST(it->rdma_call, rdma_entry, rdma_next, read_segment);
	LIST(it->rdma_reads, rdma_entry, rdma_next, read_segment);
	LIST(it->rdma_provisional_writes, rdma_entry, rdma_next, write_chunk);
	OPTIONAL(it->rdma_provisional_reply, write_chunk);
}

static void hdr_call_middle(rpcrdma2_hdr_call_middle *it)
{
	word(&it->rdma_remaining);
}

static void hdr_call_inline(rpcrdma2_hdr_call_inline *it)
{
	word(&it->rdma_inv_handle);
	LIST(it->rdma_reads, rdma_entry, rdma_next, read_segment);
	LIST(it->rdma_provisional_writes, rdma_entry, rdma_next, write_chunk);
	OPTIONAL(it->rdma_provisional_reply, write_chunk);
}

static void hdr_reply_external(rpcrdma2_hdr_reply_external *it)
{
	LIST(it->rdma_writes, rdma_entry, rdma_next, write_chunk);
	OPTIONAL(it->rdma_reply, write_chunk);
}

static void hdr_reply_middle(rpcrdma2_hdr_reply_middle *it)
{
	word(&it->rdma_remaining);
}

static void hdr_reply_inline(rpcrdma2_hdr_reply_inline *it)
{
	LIST(it->rdma_writes, rdma_entry, rdma_next, write_chunk);
}

/* The round-trip extensions. */

static void location(xmdp_loc *it)
{
	ENUM(it->type);
	switch (it->type) {
	case XMPTYPE_EXRW:
		EACH(it->xmdp_loc_u.xmdl_ex, xmdl_ex, segment);
		break;
	case XMPTYPE_TBSN:
		word(&it->xmdp_loc_u.xmdl_tbsn.xmdl_offset);
		EACH(it->xmdp_loc_u.xmdl_tbsn.xmdl_bsnum, xmdl_bsnum, word);
		break;
	default:
		break;
	}
}

static void item(xmdp_mitem *it)
{
	word(&it->xmdmi_disp);
	word(&it->xmdmi_length);
	location(&it->xmdmi_where);
}

static void response_location(xmdp_rsdloc *it)
{
	ENUM(it->type);
	switch (it->type) {
	case XMPTYPE_EXRW:
	case XMPTYPE_CHOOSE:
		EACH(it->xmdp_rsdloc_u.xmdrsdl_ex, xmdrsdl_ex, segment);
		break;
	case XMPTYPE_BYSIZE:
		word(&it->xmdp_rsdloc_u.xmdrsdl_bysize.xmdrsdl_dsdov);
		EACH(it->xmdp_rsdloc_u.xmdrsdl_bysize.xmdrsdl_bsex, xmdrsdl_bsex, segment);
		break;
	default:
		break;
	}
}

static void response_item(xmdp_rsditem *it)
{
	word(&it->xmdrsdi_minlen);
	response_location(&it->xmdrsdi_loc);
}

static void response_set(xmdp_rsdset *it)
{
	word(&it->xmdrsds_range.xmdrsdr_begin);
	word(&it->xmdrsds_range.xmdrsdr_end);
	EACH(it->xmdrsds_items, xmdrsds_items, response_item);
}

static void xmt_req(optxmt_req *it)
{
	EACH(it->optxrq_dp, xmdp_grpinfo, item);
	EACH(it->optxrq_rsd, xmdp_rsdgroup, response_set);
	word(&it->optxrq_count);
	word(&it->optxrq_rsbuf);
	word(&it->optxrq_pslen);
}

static void xmt_resp(optxmt_resp *it)
{
	EACH(it->optxrs_dp, xmdp_grpinfo, item);
	word(&it->optxrs_count);
	word(&it->optxrs_pslen);
}

static void xmt_cont(optxmt_cont *it)
{
	word(&it->optxc_xnum);
	word(&it->optxc_itype);
	word(&it->optxc_pslen);
}

static void transmission(xms_id *it)
{
	word(&it->xmsi_xid);
	ENUM(it->xmsi_dir);
	word(&it->xmsi_seq);
}

static void rept_err(optrept_err *it)
{
	transmission(&it->optre_bad);
	OPTIONAL(it->optre_lead, transmission);
	ENUM(it->optre_info.optre_which);
	switch (it->optre_info.optre_which) {
	case OPTRERR_BADHMT:
	case OPTRERR_BADOMT:
	case OPTRERR_BADSEQ:
	case OPTRERR_BADXID:
		word(&it->optre_info.optr_info_u.optri_expected.optri_expect);
		word(&it->optre_info.optr_info_u.optri_expected.optri_current);
		break;
	case OPTRERR_BADCONT:
		break;
	case OPTRERR_BADTBSN:
	case OPTRERR_BADOFF:
	case OPTRERR_BADPL:
		word(&it->optre_info.optr_info_u.optri_range.optri_value);
		word(&it->optre_info.optr_info_u.optri_range.optri_min);
		word(&it->optre_info.optr_info_u.optri_range.optri_max);
		break;
	}
}

/* Version 1. */

static void v1_segment(xdr_rdma_segment *it)
{
	word(&it->handle);
	word(&it->length);
	hyper(&it->offset);
}

static void v1_read_chunk(xdr_read_chunk *it)
{
	word(&it->position);
	v1_segment(&it->target);
}

static void v1_write_chunk(xdr_write_chunk *it)
{
	EACH(it->target, target, v1_segment);
}

#define V1_LISTS(header) \
	do { \
		LIST((header).rdma_reads, entry, next, v1_read_chunk); \
		LIST((header).rdma_writes, entry, next, v1_write_chunk); \
		OPTIONAL((header).rdma_reply, v1_write_chunk); \
	} while (0)

static void v1_body(rdma_body *it)
{
	switch (it->proc) {
	case RDMA_MSG:
		V1_LISTS(it->rdma_body_u.rdma_msg);
		break;
	case RDMA_NOMSG:
		V1_LISTS(it->rdma_body_u.rdma_nomsg);
		break;
	case RDMA_MSGP:
		word(&it->rdma_body_u.rdma_msgp.rdma_align);
		word(&it->rdma_body_u.rdma_msgp.rdma_thresh);
		V1_LISTS(it->rdma_body_u.rdma_msgp);
		break;
	case RDMA_DONE:
		break;
	case RDMA_ERROR:
		ENUM(it->rdma_body_u.rdma_error.err);
		if (it->rdma_body_u.rdma_error.err == ERR_VERS) {
			word(&it->rdma_body_u.rdma_error.rpc_rdma_error_u.rdma_range.rdma_vers_low);
			word(&it->rdma_body_u.rdma_error.rpc_rdma_error_u.rdma_range.rdma_vers_high);
		}
		break;
	}
}

/* Messages. */

/* What stands behind the prefix of version 2. */
union body {
	rpcrdma2_hdr_error error;
	rpcrdma2_hdr_connprop connprop;
	rpcrdma2_hdr_call_external call_external;
	rpcrdma2_hdr_call_middle call_middle;
	rpcrdma2_hdr_call_inline call_inline;
	rpcrdma2_hdr_reply_external reply_external;
	rpcrdma2_hdr_reply_middle reply_middle;
	rpcrdma2_hdr_reply_inline reply_inline;
	optxmt_req request;
	optxmt_resp response;
	optxmt_cont cont;
	optrept_err report;
};

struct message {
	rpcrdma2_hdr_prefix prefix;
	union body body;
	/* Instead of both, in version 1. */
	rdma_msg v1;
	char *payload;
	u_int payload_length;
};

#define KIND(htype, text, xdr, payload) \
	{ htype, (void (*)(union body *))text, (xdrproc_t)xdr, payload }

static void nothing(union body *it)
{
	(void)it;
}

static const struct kind {
	u_int htype;
	void (*text)(union body *);
	xdrproc_t xdr;
	int payload;
} kinds[] = {
	KIND(RDMA2_ERROR, hdr_error, xdr_rpcrdma2_hdr_error, 0),
	KIND(RDMA2_GRANT, nothing, xdr_void, 0),
	KIND(RDMA2_CONNPROP_MIDDLE, hdr_connprop, xdr_rpcrdma2_hdr_connprop, 0),
	KIND(RDMA2_CONNPROP_FINAL, hdr_connprop, xdr_rpcrdma2_hdr_connprop, 0),
	KIND(RDMA2_CALL_EXTERNAL, hdr_call_external, xdr_rpcrdma2_hdr_call_external, 0),
	KIND(RDMA2_CALL_MIDDLE, hdr_call_middle, xdr_rpcrdma2_hdr_call_middle, 1),
	KIND(RDMA2_CALL_INLINE, hdr_call_inline, xdr_rpcrdma2_hdr_call_inline, 1),
	KIND(RDMA2_REPLY_EXTERNAL, hdr_reply_external, xdr_rpcrdma2_hdr_reply_external, 0),
	KIND(RDMA2_REPLY_MIDDLE, hdr_reply_middle, xdr_rpcrdma2_hdr_reply_middle, 1),
	KIND(RDMA2_REPLY_INLINE, hdr_reply_inline, xdr_rpcrdma2_hdr_reply_inline, 1),
	KIND(ROPT_XMTREQ, xmt_req, xdr_optxmt_req, 1),
	KIND(ROPT_XMTRESP, xmt_resp, xdr_optxmt_resp, 1),
	KIND(ROPT_XMTCONT, xmt_cont, xdr_optxmt_cont, 1),
	KIND(ROPT_REPTERR, rept_err, xdr_optrept_err, 0),
};

static const struct kind *kind_of(u_int htype)
{
	for (size_t at = 0; at < sizeof(kinds) / sizeof(*kinds); at++)
		if (kinds[at].htype == htype)
			return &kinds[at];
	return NULL;
}

/* Moves the header between its structures and `stream`; returns whether a payload may follow, or -1. */
static int header(XDR *stream, struct message *it, u_int vers)
{
	const struct kind *kind;

	if (vers == 1) {
		if (!xdr_rdma_msg(stream, &it->v1))
			return -1;
		return it->v1.rdma_body.proc <= RDMA_MSGP;
	}
	if (!xdr_rpcrdma2_hdr_prefix(stream, &it->prefix))
		return -1;
	kind = kind_of(it->prefix.rdma_start.rdma_htype);
	if (!kind || !kind->xdr(stream, &it->body))
		return -1;
	return kind->payload;
}

/* Moves the values behind the version between their structures and text. */
static void values(struct message *it, u_int vers)
{
	const struct kind *kind;

	if (vers == 1) {
		ENUM(it->v1.rdma_body.proc);
		word(&it->v1.rdma_xid);
		word(&it->v1.rdma_credit);
		it->v1.rdma_vers = vers;
		v1_body(&it->v1.rdma_body);
		return;
	}
	word(&it->prefix.rdma_start.rdma_htype);
	word(&it->prefix.rdma_start.rdma_xid);
	word(&it->prefix.rdma_start.rdma_credit);
	it->prefix.rdma_start.rdma_vers = vers;
	kind = kind_of(it->prefix.rdma_start.rdma_htype);
	if (!kind)
		fail("a header type that nobody described");
	kind->text(&it->body);
}

static void encode(char *line, char *bytes)
{
	struct message it = { 0 };
	u_int vers = strtoul(strtok(line, " \n"), NULL, 10);
	XDR stream;
	int payload;

	values(&it, vers);
	xdrmem_create(&stream, bytes, MESSAGE_MAX, XDR_ENCODE);
	payload = header(&stream, &it, vers);
	if (payload < 0)
		fail("values that cannot be encoded");
	to_hex(bytes, xdr_getpos(&stream));
	if (payload) {
		octets(&it.payload, &it.payload_length);
		to_hex(it.payload, it.payload_length);
	}
	printf("\n");
}

static void decode(char *line, char *bytes)
{
	struct message it = { 0 };
	u_int length = from_hex(strtok(line, " \n"), bytes);
	u_int vers = length < 8 ? 0 : (unsigned char)bytes[7];
	XDR stream;
	int payload;

	xdrmem_create(&stream, bytes, length, XDR_DECODE);
	payload = header(&stream, &it, vers);
	it.payload = bytes + xdr_getpos(&stream);
	it.payload_length = length - xdr_getpos(&stream);
	if (payload < 0 || (!payload && it.payload_length)) {
		printf("refused\n");
		return;
	}
	printf("%u", vers);
	values(&it, vers);
	if (payload)
		octets(&it.payload, &it.payload_length);
	printf("\n");
}

int main(int count, char **arguments)
{
	static char line[4 * MESSAGE_MAX];
	static char bytes[MESSAGE_MAX];

	if (count != 2)
		fail("say encode or decode");
	taking = !strcmp(arguments[1], "encode");
	while (fgets(line, sizeof(line), stdin)) {
		if (taking)
			encode(line, bytes);
		else
			decode(line, bytes);
	}
	return 0;
}
