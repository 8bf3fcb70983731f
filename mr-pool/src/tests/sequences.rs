//! Random lives of leases, against a plain record of what should be there.

use std::collections::BTreeSet;

use super::*;

/// A lease in some state, and the octet it is filled with.
enum Held {
    Local(Local),
    Shared(Shared),
    Source(PostedSource<Local>),
    SharedSource(PostedSource<Shared>),
    Sink(PostedSink),
    Exposed(Exposed, Option<Sink>),
}

impl Held {
    /// Takes the lease one random step on; clones go to `more`.
    fn step(self, fill: u8, handle: Handle, rng: &mut Rng, more: &mut Vec<(Self, u8)>) -> Self {
        match self {
            Self::Local(lease) => {
                assert!(lease.bytes().iter().all(|&byte| byte == fill), "another wrote here");
                match rng.below(5) {
                    0 => Self::Shared(lease.share()),
                    1 => Self::Source(lease.into_source()),
                    2 => Self::Sink(lease.into_sink()),
                    3 => Self::Exposed(lease.expose_read(handle).0, None),
                    _ => {
                        let (exposed, sink) = lease.expose_write(handle);
                        Self::Exposed(exposed, Some(sink))
                    }
                }
            }
            Self::Shared(lease) => {
                assert!(lease.bytes().iter().all(|&byte| byte == fill), "another wrote here");
                more.push((Self::Shared(lease.clone()), fill));
                Self::SharedSource(lease.into_source())
            }
            Self::Source(posted) => {
                let view = posted.source(0..posted.len()).unwrap();
                assert!(view.bytes().iter().all(|&byte| byte == fill));
                drop(view);
                Self::Local(completed(posted))
            }
            Self::SharedSource(posted) => Self::Shared(completed(posted)),
            Self::Sink(posted) => {
                let half = posted.len() / 2;
                posted.sink(half..posted.len()).unwrap().place(0, &[fill]).ok();
                Self::Local(filled(posted))
            }
            Self::Exposed(exposed, sink) => {
                if let Some(mut sink) = sink {
                    sink.place(0, &vec![fill; exposed.len()]).unwrap();
                }
                Self::Local(fenced(exposed))
            }
        }
    }

    /// Ends the lease as its state demands.
    fn end(self) {
        match self {
            Self::Source(posted) => drop(completed(posted)),
            Self::SharedSource(posted) => drop(completed(posted)),
            Self::Sink(posted) => drop(filled(posted)),
            Self::Exposed(exposed, sink) => {
                drop(sink);
                drop(fenced(exposed));
            }
            Self::Local(_) | Self::Shared(_) => {}
        }
    }
}

fn assert_gauges(pool: &Pool, held: &[(Held, u8)]) {
    let mut counts = [0; 4];
    for (held, _) in held {
        counts[match held {
            Held::Local(_) => 0,
            Held::Shared(_) => 1,
            Held::Source(_) | Held::SharedSource(_) | Held::Sink(_) => 2,
            Held::Exposed(..) => 3,
        }] += 1;
    }
    let gauges = pool.gauges();
    assert_eq!([gauges.local, gauges.shared, gauges.posted, gauges.exposed], counts);
    assert_eq!(gauges.orphans, 0);
}

#[test]
fn whatever_becomes_of_leases_no_octet_is_lent_twice_and_all_come_home() {
    let steps = if cfg!(miri) { 300 } else { 3000 };
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let pool = pool((64 + rng.below(400)) << 12);
        let mut held: Vec<(Held, u8)> = Vec::new();
        for step in 0..steps {
            let fill = u8::try_from(step % 251).unwrap();
            match rng.below(4) {
                0 | 1 => {
                    if let Some(mut lease) = pool.lease(rng.length(18)) {
                        lease.bytes_mut().fill(fill);
                        held.push((Held::Local(lease), fill));
                    }
                }
                2 if !held.is_empty() => {
                    let (lease, fill) = held.swap_remove(rng.below(held.len()));
                    let mut more = Vec::new();
                    let lease = lease.step(fill, Handle(step), &mut rng, &mut more);
                    held.push((lease, fill));
                    held.append(&mut more);
                }
                3 if !held.is_empty() => held.swap_remove(rng.below(held.len())).0.end(),
                _ => {}
            }
            assert_gauges(&pool, &held);
        }
        let starts: BTreeSet<_> = held
            .iter()
            .filter_map(|(held, _)| match held {
                Held::Local(lease) => Some(lease.bytes().as_ptr().addr()),
                _ => None,
            })
            .collect();
        assert_eq!(starts.len() as u64, pool.gauges().local);
        held.into_iter().for_each(|(held, _)| held.end());
        assert_all_home(&pool);
    }
}
