use super::*;

const CHECKED: Trust = Trust {
    privilege: Privilege::Privileged,
    claims: Claims::Vouched,
    anonymous_gid: 65_533,
    local_ports_reserved: 80,
};

const fn tcp(port: u16, host: Host) -> Peer {
    Peer::Tcp { port, host }
}

/// Claims `uid`, group `gid` and the further groups 7 and 8.
fn claim(uid: u32, gid: u32) -> Credential<'static> {
    const GIDS: &[[u8; 4]] = &[[0, 0, 0, 7], [0, 0, 0, 8]];
    Credential::Sys(AuthSys::new(1, b"host", uid, gid).with_gids(GIDS).unwrap())
}

/// The believed part of a claim: user, group, further groups.
fn judged(trust: &Trust, peer: Peer, claim: Credential<'_>) -> Option<(u32, u32, Vec<u32>)> {
    let mut gids = [[0; 4]; GIDS_MAX];
    let standing = trust.standing(peer);
    let credential = trust.judge(standing, claim, |gid| gid == 8 || gid == 1000, &mut gids)?;
    let Credential::Sys(sys) = credential else { panic!("{credential:?}") };
    Some((sys.uid, sys.gid, sys.gids().collect()))
}

#[test]
fn a_privileged_server_believes_what_the_system_vouches_for() {
    let all = vec![7, 8];
    let local = |uid| Peer::Rdma(PeerUser::Local(uid));
    let (reserved, ephemeral) = (tcp(1023, Host::Elsewhere), tcp(1024, Host::Elsewhere));
    let as_claimed = |uid| Some((uid, 1000, all.clone()));
    for (peer, uid, expected) in [
        (reserved, 1000, as_claimed(1000)),
        (reserved, 0, as_claimed(0)),
        (ephemeral, 1000, None),
        (ephemeral, 0, None),
        (tcp(79, Host::Here), 1000, as_claimed(1000)),
        (tcp(80, Host::Here), 1000, None),
        (tcp(1023, Host::Here), 0, None),
        (local(0), 1000, as_claimed(1000)),
        (local(0), 0, as_claimed(0)),
        (local(1000), 1000, Some((1000, 1000, vec![8]))),
        (local(1000), 1001, None),
        (local(1000), 0, None),
        (Peer::Rdma(PeerUser::Unknown), 1000, None),
        (Peer::Rdma(PeerUser::Unknown), 0, None),
        (Peer::Rdma(PeerUser::Remote), 1000, as_claimed(1000)),
    ] {
        assert_eq!(judged(&CHECKED, peer, claim(uid, 1000)), expected, "{peer:?} claims {uid}");
    }
    let stranger = judged(&CHECKED, local(1000), claim(1000, 5));
    assert_eq!(stranger, Some((1000, 65_533, vec![8])), "a group it is not in");
}

#[test]
fn a_server_that_trusts_all_or_has_no_privilege_believes_everybody() {
    let unprivileged = Trust { privilege: Privilege::Unprivileged, ..CHECKED };
    let insecure = Trust { claims: Claims::All, ..CHECKED };
    for trust in [unprivileged, insecure, Trust::ALL] {
        for peer in [
            tcp(50_000, Host::Here),
            Peer::Rdma(PeerUser::Local(1000)),
            Peer::Rdma(PeerUser::Unknown),
            Peer::Rdma(PeerUser::Remote),
        ] {
            let expected = Some((7, 5, vec![7, 8]));
            assert_eq!(judged(&trust, peer, claim(7, 5)), expected, "{trust:?} {peer:?}");
        }
    }
}

#[test]
fn who_claims_nothing_is_not_disbelieved() {
    let mut gids = [[0; 4]; GIDS_MAX];
    let standing = CHECKED.standing(tcp(50_000, Host::Here));
    let credential = CHECKED.judge(standing, Credential::None, |_| false, &mut gids);
    assert_eq!(credential, Some(Credential::None));
}

#[test]
fn groups_are_those_of_the_account_files() {
    let passwd = b"root:x:0:0::/root:/bin/sh\nann:x:1000:100::/:\nbob:x:1001:101::/:\n\
        also:x:1000:102::/:\nshort:x\n";
    let group = b"root:x:0:\nstaff:x:50:bob,ann\nwheel:x:10:bob\nodd:x:zero:ann\nempty:x:51:\n\
        more:x:52:also";
    assert_eq!(memberships(1000, passwd, group), [100, 102, 50, 52]);
    assert_eq!(memberships(1001, passwd, group), [101, 50, 10]);
    assert_eq!(memberships(2000, passwd, group), [] as [u32; 0], "nobody knows it");
    assert_eq!(memberships(0, b"", b"x:y:1:"), [] as [u32; 0]);
    assert_eq!(memberships(5, b":x:5:6::/:", b"x:y:1:"), [6], "a user without a name");
}

#[test]
fn root_is_listed_on_any_machine_that_has_accounts() {
    if Path::new("/etc/passwd").exists() {
        assert!(groups_of(0).contains(&0));
    }
}

#[test]
fn only_the_addresses_of_this_machine_are_here() {
    for (address, host) in [
        ("127.0.0.1", Host::Here),
        ("127.1.2.3", Host::Here),
        ("::1", Host::Here),
        ("::ffff:127.0.0.1", Host::Here),
        ("192.0.2.1", Host::Elsewhere),
        ("2001:db8::1", Host::Elsewhere),
    ] {
        assert_eq!(Host::of(address.parse().unwrap()), host, "{address}");
    }
    for own in interfaces::addresses().unwrap() {
        assert_eq!(Host::of(own), Host::Here, "{own}");
    }
}

#[test]
fn no_setting_of_this_machine_makes_more_ports_count() {
    let trust = Trust { local_ports_reserved: 2000, ..CHECKED };
    assert_eq!(trust.standing(tcp(1024, Host::Here)), Standing::Anonymous);
}
