//! Random descriptions of valid messages, with their members in the order in which they are printed.

/// Writes a random description.
pub(super) type Describe = fn(&mut Rng) -> String;

/// One for each header type and error.
pub(super) const KINDS: &[Describe] = &[
    |r| v2(r, "RDMA2_GRANT", ""),
    |r| error(r, "RDMA2_ERR_VERS", &["vers_low", "vers_high"]),
    |r| error(r, "RDMA2_ERR_BAD_XDR", &[]),
    |r| error(r, "RDMA2_ERR_BAD_PROPVAL", &[]),
    |r| error(r, "RDMA2_ERR_INVAL_HTYPE", &[]),
    |r| error(r, "RDMA2_ERR_INVAL_CONT", &[]),
    |r| error(r, "RDMA2_ERR_READ_CHUNKS", &["max_chunks"]),
    |r| error(r, "RDMA2_ERR_WRITE_CHUNKS", &["max_chunks"]),
    |r| error(r, "RDMA2_ERR_SEGMENTS", &["max_segments"]),
    |r| error(r, "RDMA2_ERR_WRITE_RESOURCE", &["chunk_index", "length_needed"]),
    |r| error(r, "RDMA2_ERR_REPLY_RESOURCE", &["length_needed"]),
    |r| error(r, "RDMA2_ERR_VERS_MISMATCH", &[]),
    |r| error(r, "RDMA2_ERR_SYSTEM", &[]),
    |r| {
        let members = format!(r#","props":{}"#, r.props());
        v2(r, "RDMA2_CONNPROP_MIDDLE", &members)
    },
    |r| {
        let members = format!(r#","props":{}"#, r.props());
        v2(r, "RDMA2_CONNPROP_FINAL", &members)
    },
    |r| {
        let call = r.reads(1, 0);
        let members = format!(r#","inv_handle":0,"call":{call},{}"#, r.call_lists());
        v2(r, "RDMA2_CALL_EXTERNAL", &members)
    },
    |r| {
        let members = r.fragment();
        v2(r, "RDMA2_CALL_MIDDLE", &members)
    },
    |r| {
        let members = format!(r#","inv_handle":0,{},"payload":"{}""#, r.call_lists(), r.octets());
        v2(r, "RDMA2_CALL_INLINE", &members)
    },
    |r| {
        let members = format!(r#","writes":{},"reply":{}"#, r.writes(), r.segments());
        v2(r, "RDMA2_REPLY_EXTERNAL", &members)
    },
    |r| {
        let members = r.fragment();
        v2(r, "RDMA2_REPLY_MIDDLE", &members)
    },
    |r| {
        let members = format!(r#","writes":{},"payload":"{}""#, r.writes(), r.octets());
        v2(r, "RDMA2_REPLY_INLINE", &members)
    },
    |r| v1(r, "RDMA_DONE", ""),
    |r| v1(r, "RDMA_ERROR", ",\"err\":\"ERR_CHUNK\""),
    |r| {
        let members =
            format!(r#","err":"ERR_VERS","vers_low":{},"vers_high":{}"#, r.word(), r.word());
        v1(r, "RDMA_ERROR", &members)
    },
    |r| v1_rpc(r, "RDMA_MSG", ""),
    |r| v1_rpc(r, "RDMA_NOMSG", ""),
    |r| {
        let padding = format!(r#","align":{},"thresh":{}"#, r.word(), r.word());
        v1_rpc(r, "RDMA_MSGP", &padding)
    },
    |r| {
        let (dp, rsd) = (r.array(0, item), r.array(0, direction_set));
        let members = format!(r#","optxrq_dp":{dp},"optxrq_rsd":{rsd}"#);
        transmission(r, "ROPT_XMTREQ", members, &["optxrq_count", "optxrq_rsbuf", "optxrq_pslen"])
    },
    |r| {
        let members = format!(r#","optxrs_dp":{}"#, r.array(0, item));
        transmission(r, "ROPT_XMTRESP", members, &["optxrs_count", "optxrs_pslen"])
    },
    |r| {
        transmission(
            r,
            "ROPT_XMTCONT",
            String::new(),
            &["optxc_xnum", "optxc_itype", "optxc_pslen"],
        )
    },
    |r| report(r, "OPTRERR_BADHMT", EXPECTED),
    |r| report(r, "OPTRERR_BADOMT", EXPECTED),
    |r| report(r, "OPTRERR_BADCONT", &[]),
    |r| report(r, "OPTRERR_BADSEQ", EXPECTED),
    |r| report(r, "OPTRERR_BADXID", EXPECTED),
    |r| report(r, "OPTRERR_BADOFF", RANGE),
    |r| report(r, "OPTRERR_BADTBSN", RANGE),
    |r| report(r, "OPTRERR_BADPL", RANGE),
];

fn v2(rng: &mut Rng, htype: &str, members: &str) -> String {
    let (xid, credit) = (rng.word(), rng.word());
    format!(r#"{{"xid":{xid},"vers":2,"credit":{credit},"htype":"{htype}"{members}}}"#)
}

fn v1(rng: &mut Rng, proc: &str, members: &str) -> String {
    let (xid, credit) = (rng.word(), rng.word());
    format!(r#"{{"xid":{xid},"vers":1,"credit":{credit},"proc":"{proc}"{members}}}"#)
}

fn v1_rpc(rng: &mut Rng, proc: &str, padding: &str) -> String {
    let (lists, payload) = (rng.call_lists(), rng.octets());
    v1(rng, proc, &format!(r#"{padding},{lists},"payload":"{payload}""#))
}

fn transmission(rng: &mut Rng, htype: &str, mut members: String, words: &[&str]) -> String {
    members.push_str(&rng.words(words));
    members.push_str(&format!(r#","payload":"{}""#, rng.octets()));
    v2(rng, htype, &members)
}

fn item(rng: &mut Rng) -> String {
    let place = match rng.below(4) {
        0 => format!(r#"{{"type":"XMPTYPE_EXRW","xmdl_ex":{}}}"#, rng.segments()),
        1 => {
            let numbers = rng.array(0, |rng| rng.word().to_string());
            format!(
                r#"{{"type":"XMPTYPE_TBSN","xmdl_offset":{},"xmdl_bsnum":{numbers}}}"#,
                rng.word()
            )
        }
        2 => r#"{"type":"XMPTYPE_TOOSHORT"}"#.to_owned(),
        _ => r#"{"type":"XMPTYPE_NOITEM"}"#.to_owned(),
    };
    let (disp, length) = (rng.word(), rng.word());
    format!(r#"{{"xmdmi_disp":{disp},"xmdmi_length":{length},"xmdmi_where":{place}}}"#)
}

fn direction_set(rng: &mut Rng) -> String {
    let items = rng.array(0, |rng| {
        let place = match rng.below(4) {
            0 => format!(r#"{{"type":"XMPTYPE_EXRW","xmdrsdl_ex":{}}}"#, rng.segments()),
            1 => format!(r#"{{"type":"XMPTYPE_CHOICE","xmdrsdl_ex":{}}}"#, rng.segments()),
            2 => {
                let (dsdov, segments) = (rng.word(), rng.segments());
                format!(r#"{{"type":"XMPTYPE_BYSIZE","xmdrsdl_dsdov":{dsdov},"xmdrsdl_bsex":{segments}}}"#)
            }
            _ => r#"{"type":"XMPTYPE_TBSN"}"#.to_owned(),
        };
        format!(r#"{{"xmdrsdi_minlen":{},"xmdrsdi_loc":{place}}}"#, rng.word())
    });
    let (begin, end) = (rng.word(), rng.word());
    format!(
        r#"{{"xmdrsds_range":{{"xmdrsdr_begin":{begin},"xmdrsdr_end":{end}}},"xmdrsds_items":{items}}}"#
    )
}

const EXPECTED: &[&str] = &["optri_expect", "optri_current"];
const RANGE: &[&str] = &["optri_value", "optri_min", "optri_max"];

fn report(rng: &mut Rng, which: &str, words: &[&str]) -> String {
    let id = |rng: &mut Rng| {
        let dir = if rng.below(2) == 0 { "CALL" } else { "REPLY" };
        format!(r#"{{"xmsi_xid":{},"xmsi_dir":"{dir}","xmsi_seq":{}}}"#, rng.word(), rng.word())
    };
    let bad = id(rng);
    let lead = if rng.below(2) == 0 { "null".to_owned() } else { id(rng) };
    let info = format!(r#"{{"optre_which":"{which}"{}}}"#, rng.words(words));
    let members = format!(r#","optre_bad":{bad},"optre_lead":{lead},"optre_info":{info}"#);
    v2(rng, "ROPT_REPTERR", &members)
}

fn error(rng: &mut Rng, name: &str, words: &[&str]) -> String {
    let words = rng.words(words);
    v2(rng, "RDMA2_ERROR", &format!(r#","err":"{name}"{words}"#))
}

/// Draws what stands in messages.
pub(super) struct Rng(haulage_test_support::Rng);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(haulage_test_support::Rng::new(seed))
    }

    pub(super) const fn octet(&mut self) -> u8 {
        self.0.octet()
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// Small numbers and the ends of the range come often.
    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => u32::try_from(self.below(4)).unwrap(),
            1 => u32::MAX,
            _ => self.0.word(),
        }
    }

    fn words(&mut self, names: &[&str]) -> String {
        names.iter().map(|name| format!(r#","{name}":{}"#, self.word())).collect()
    }

    fn octets(&mut self) -> String {
        let count = self.below(20);
        (0..count).map(|_| format!("{:02x}", self.0.octet())).collect()
    }

    fn array(&mut self, least: usize, element: impl Fn(&mut Self) -> String) -> String {
        let count = least + self.below(3);
        let elements: Vec<_> = (0..count).map(|_| element(self)).collect();
        format!("[{}]", elements.join(","))
    }

    /// Lengths stay short of what a chunk may hold, and ends short of what an offset may reach.
    fn segment_members(&mut self) -> String {
        let (handle, length) = (self.word(), self.word() >> 4);
        let offset = self.0.next() >> self.below(60) & !(1 << 63);
        let offset = if offset >> 53 == 0 { offset.to_string() } else { format!("\"{offset}\"") };
        format!(r#""handle":{handle},"length":{length},"offset":{offset}"#)
    }

    fn segments(&mut self) -> String {
        self.array(0, |rng| format!("{{{}}}", rng.segment_members()))
    }

    fn reads(&mut self, least: usize, position: u32) -> String {
        self.array(least, |rng| format!(r#"{{"position":{position},{}}}"#, rng.segment_members()))
    }

    fn writes(&mut self) -> String {
        self.array(0, Self::segments)
    }

    fn call_lists(&mut self) -> String {
        let position = (self.word() | 4) & !3;
        let (reads, writes) = (self.reads(0, position), self.writes());
        let reply = if self.below(2) == 0 { "null".to_owned() } else { self.segments() };
        format!(r#""reads":{reads},"writes":{writes},"reply":{reply}"#)
    }

    fn fragment(&mut self) -> String {
        format!(r#","remaining":{},"payload":"{}""#, self.word(), self.octets())
    }

    /// Returns properties of an extension: the values of known ones have types of their own.
    fn props(&mut self) -> String {
        self.array(0, |rng| {
            let (which, data) = (rng.word() | 0x8000_0000, rng.octets());
            format!(r#"{{"which":{which},"data":"{data}"}}"#)
        })
    }
}
