//! Random lives of leases, against a plain record of what should be there.

use std::collections::BTreeSet;

use super::*;

/// A lease in some state, or a view that outlived its own.
enum Held {
    Local(Local),
    Shared(Shared),
    Source(PostedSource<Local>, Vec<Source>),
    SharedSource(PostedSource<Shared>, Vec<Source>),
    Sink(PostedSink, Vec<Sink>),
    Read(Exposed, Option<Source>),
    Write(Exposed, Option<Sink>),
    View(Source),
}

impl Held {
    /// Takes the lease one random step on; clones, and views it leaves behind, go to `more`. All is
    /// filled with `fill`.
    fn step(self, fill: u8, handle: Handle, rng: &mut Rng, more: &mut Vec<(Self, u8)>) -> Self {
        let all_fill = |bytes: &[u8]| {
            assert!(bytes.iter().all(|&byte| byte == fill), "another wrote here");
        };
        match self {
            Self::Local(lease) => {
                all_fill(lease.bytes());
                match rng.below(5) {
                    0 => Self::Shared(lease.share()),
                    1 => Self::Source(lease.into_source(), Vec::new()),
                    2 => Self::Sink(lease.into_sink(), Vec::new()),
                    3 => {
                        let (exposed, source) = lease.expose_read(handle);
                        Self::Read(exposed, Some(source))
                    }
                    _ => {
                        let (exposed, sink) = lease.expose_write(handle);
                        Self::Write(exposed, Some(sink))
                    }
                }
            }
            Self::Shared(lease) => {
                all_fill(lease.bytes());
                more.push((Self::Shared(lease.clone()), fill));
                Self::SharedSource(lease.into_source(), Vec::new())
            }
            Self::Source(posted, mut views) => {
                views.iter().for_each(|view| all_fill(view.bytes()));
                if rng.below(2) == 0 {
                    views.push(posted.source(rng.below(posted.len() + 1)..posted.len()).unwrap());
                } else {
                    views.pop();
                }
                match posted.complete() {
                    Ok(lease) => {
                        assert!(views.is_empty());
                        Self::Local(lease)
                    }
                    Err(posted) => {
                        assert!(!views.is_empty());
                        Self::Source(posted, views)
                    }
                }
            }
            Self::SharedSource(posted, mut views) => {
                if rng.below(2) == 0 {
                    views.push(posted.source(0..posted.len()).unwrap());
                    return Self::SharedSource(posted, views);
                }
                more.extend(views.into_iter().map(|view| (Self::View(view), fill)));
                Self::Shared(posted.complete())
            }
            Self::Sink(mut posted, mut views) => {
                if rng.below(2) == 0 {
                    let half = posted.len() / 2;
                    views.push(posted.sink(half..posted.len()).unwrap());
                } else if let Some(mut view) = views.pop() {
                    view.place(0, &[fill]).ok();
                }
                match posted.complete() {
                    Ok(lease) => {
                        assert!(views.is_empty());
                        Self::Local(lease)
                    }
                    Err(posted) => {
                        assert!(!views.is_empty());
                        Self::Sink(posted, views)
                    }
                }
            }
            Self::Read(exposed, mut source) => {
                source.iter().for_each(|view| all_fill(view.bytes()));
                source = source.filter(|_| rng.below(2) == 0);
                match try_fence(exposed) {
                    Ok(lease) => {
                        assert!(source.is_none());
                        Self::Local(lease)
                    }
                    Err(exposed) => {
                        assert!(source.is_some());
                        Self::Read(exposed, source)
                    }
                }
            }
            Self::Write(exposed, mut sink) => {
                if let Some(sink) = &mut sink {
                    sink.place(0, &vec![fill; exposed.len()]).unwrap();
                }
                sink = sink.filter(|_| rng.below(2) == 0);
                match try_fence(exposed) {
                    Ok(lease) => {
                        assert!(sink.is_none());
                        Self::Local(lease)
                    }
                    Err(exposed) => {
                        assert!(sink.is_some());
                        Self::Write(exposed, sink)
                    }
                }
            }
            Self::View(view) => {
                all_fill(view.bytes());
                Self::View(view)
            }
        }
    }

    /// Ends the lease as its state demands.
    fn end(self) {
        match self {
            Self::Source(posted, views) => {
                drop(views);
                drop(posted.complete().unwrap());
            }
            Self::SharedSource(posted, _views) => drop(posted.complete()),
            Self::Sink(posted, views) => {
                drop(views);
                drop(posted.complete().unwrap());
            }
            Self::Read(exposed, view) => {
                drop(view);
                drop(fenced(exposed));
            }
            Self::Write(exposed, view) => {
                drop(view);
                drop(fenced(exposed));
            }
            Self::Local(_) | Self::Shared(_) | Self::View(_) => {}
        }
    }
}

fn try_fence(exposed: Exposed) -> Result<Local, Exposed> {
    let proof = invalidated(exposed.handle());
    exposed.fence(proof).map_err(|(exposed, _)| exposed)
}

fn assert_gauges(pool: &Pool, held: &[(Held, u8)]) {
    let mut counts = [0; 4];
    for (held, _) in held {
        counts[match held {
            Held::Local(_) => 0,
            Held::Shared(_) => 1,
            Held::Source(..) | Held::SharedSource(..) | Held::Sink(..) => 2,
            Held::Read(..) | Held::Write(..) => 3,
            Held::View(_) => continue,
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
