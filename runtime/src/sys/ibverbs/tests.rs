//! The layout of structures shared with the libraries, compared with the headers installed here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use rdma_sys::*;

/// Sizes and offsets, by their C expressions.
type Layout = BTreeMap<String, usize>;

/// Records the offsets of fields, and, after `whole`, the size, too.
macro_rules! layout {
    ($into:ident; $(whole $whole:ident { $($field:ident $(as $c:literal)?),* })* $(begins $part:ident { $($at:ident),* })*) => {
        $(
            $into.insert(format!("sizeof(struct {})", stringify!($whole)), size_of::<$whole>());
            $(
                let name = [$($c,)? stringify!($field)][0];
                $into.insert(offset(stringify!($whole), name), offset_of!($whole, $field));
            )*
        )*
        $($(
            $into.insert(offset(stringify!($part), stringify!($at)), offset_of!($part, $at));
        )*)*
    };
}

fn offset(of: &str, field: &str) -> String {
    format!("offsetof(struct {of}, {field})")
}

fn ours() -> Layout {
    let mut found = Layout::new();
    layout! { found;
        whole ibv_sge { addr, length, lkey }
        whole ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags,
            imm_data_invalidated_rkey_union as "invalidate_rkey", wr,
            bind_mw_tso_union as "bind_mw"
        }
        whole ibv_recv_wr { wr_id, next, sg_list, num_sge }
        whole ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len,
            imm_data_invalidated_rkey_union as "invalidated_rkey", qp_num, wc_flags
        }
        whole ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        whole ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        whole ibv_qp_init_attr_ex {
            send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, send_ops_flags
        }
        whole ibv_qp_attr { qp_state, min_rnr_timer, max_rd_atomic }
        whole ibv_srq_init_attr { srq_context, attr }
        whole ibv_device_attr {
            vendor_id, max_qp, max_qp_wr, device_cap_flags, max_cqe, max_qp_rd_atom,
            max_qp_init_rd_atom, max_mw, max_srq, max_srq_wr, max_srq_sge, max_sge,
            phys_port_cnt
        }
        whole rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, retry_count,
            rnr_retry_count
        }
        begins ibv_port_attr { state, max_msg_sz }
        begins ibv_context { device, ops, async_fd, abi_compat }
        begins ibv_context_ops {
            poll_cq, req_notify_cq, alloc_mw, dealloc_mw, post_srq_recv, post_send, post_recv
        }
        begins ibv_comp_channel { fd }
        begins ibv_mr { lkey, rkey }
        begins ibv_mw { rkey }
        begins ibv_qp { qp_num }
        begins ibv_qp_ex {
            wr_id, wr_flags, wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_send,
            wr_send_inv, wr_set_inline_data, wr_set_sge, wr_start, wr_complete, wr_abort
        }
        begins rdma_event_channel { fd }
        begins rdma_cm_id { verbs, context, qp, route, port_num }
        begins rdma_cm_event { id, listen_id, event, status, param }
    }
    // The structure grows at its beginning, and is found by its end.
    let end = offset_of!(verbs_context, context);
    let before = [
        ("sz", offset_of!(verbs_context, sz)),
        ("create_qp_ex", offset_of!(verbs_context, create_qp_ex)),
    ];
    for (field, at) in before {
        let ends = [offset("verbs_context", "context"), offset("verbs_context", field)];
        found.insert(ends.join(" - "), end - at);
    }
    found
}

/// Asks a C compiler for the same sizes and offsets.
fn theirs(names: impl Iterator<Item = String>) -> Layout {
    let mut program = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
                       #include <rdma/rdma_cma.h>\nint main(void) {\n"
        .to_owned();
    for name in names {
        writeln!(program, "printf(\"%zu {name}\\n\", {name});").unwrap();
    }
    program.push_str("return 0; }\n");
    let place = std::env::temp_dir().join(format!("haulage-layout-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let (source, built) = (place.join("layout.c"), place.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&built).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new(&built).output().unwrap().stdout;
    std::fs::remove_dir_all(&place).unwrap();
    let lines = String::from_utf8(said).unwrap();
    let read = |line: &str| {
        let (number, name) = line.split_once(' ').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    lines.lines().map(read).collect()
}

#[test]
fn everything_is_laid_out_as_in_the_installed_headers() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        eprintln!("skipped: libibverbs-dev and librdmacm-dev are not installed");
        return;
    }
    let ours = ours();
    assert_eq!(theirs(ours.keys().cloned()), ours);
}
