//! How evenly a server's cores shared the GETs of a benchmark.

use haulage::service::Finished;
use haulage_kv::protocol::{Answer, Carriage, Procedure};
use haulage_kv::stat::Stat;

use crate::perf::load::{Moment, Stopped};
use crate::perf::report::Busiest;

/// The GETs that each core of a server had been asked for before the Calls that count, and after them. Those of all
/// clients: a server tells no other number.
#[derive(Debug, Default)]
pub(super) struct Gets {
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Gets {
    /// Takes the statistics of the server.
    ///
    /// # Errors
    /// The Call failed, or its results are none.
    pub(super) fn take(&mut self, moment: Moment, finished: Finished<'_>) -> Result<(), Stopped> {
        let results = finished.results?;
        let answer = Answer::decode(Procedure::Stat, results.rest(), Carriage::Unreduced);
        let Ok(Answer::Stat(stat)) = answer else { return Err(Stopped::BadReply) };
        let gets = of_cores(&stat);
        match moment {
            Moment::Before => self.before = gets,
            Moment::After => self.after = gets,
        }
        Ok(())
    }

    /// Returns the share of the busiest core.
    pub(super) fn busiest(&self) -> Busiest {
        let asked = self.before.iter().zip(&self.after);
        let asked: Vec<_> =
            asked.map(|(before, after)| after.saturating_sub(*before) as f64).collect();
        let (cores, all) = (asked.len(), asked.iter().sum::<f64>());
        let most = asked.into_iter().fold(0.0, f64::max);
        let share = match cores {
            // Whether there were GETs or not.
            1 => Some(1.0),
            _ => (all > 0.0).then(|| most * cores as f64 / all),
        };
        Busiest { cores, share }
    }
}

/// Returns the GETs of each core, by its number. A server of an earlier release tells only those of all cores, which are one
/// core's if there is one.
fn of_cores(stat: &Stat) -> Vec<u64> {
    if stat.per_core.is_empty() && stat.shards == 1 {
        return vec![stat.hits + stat.misses];
    }
    stat.per_core.iter().map(|core| core.gets).collect()
}

#[cfg(test)]
mod tests {
    use haulage_kv::stat::CoreStat;

    use super::*;

    fn share(before: &[u64], after: &[u64]) -> Option<f64> {
        let busiest = Gets { before: before.to_vec(), after: after.to_vec() }.busiest();
        assert_eq!(busiest.cores, before.len());
        busiest.share
    }

    #[test]
    fn the_busiest_core_is_compared_with_an_even_share() {
        assert_eq!(share(&[7, 1000], &[17, 1010]), Some(1.0));
        assert_eq!(share(&[0, 0, 5, 9], &[0, 0, 5, 19]), Some(4.0), "one had them all");
        assert_eq!(share(&[100, 0], &[130, 10]), Some(1.5));
        assert_eq!(share(&[3, 4], &[3, 4]), None, "nobody was asked");
        assert_eq!((share(&[3], &[3]), share(&[3], &[9])), (Some(1.0), Some(1.0)));
        assert_eq!(share(&[], &[]), None, "nobody knows");
    }

    #[test]
    fn a_server_that_tells_nothing_of_its_cores_may_have_one() {
        let one = Stat { shards: 1, hits: 3, misses: 4, ..Stat::default() };
        assert_eq!(of_cores(&one), [7]);
        assert!(of_cores(&Stat { shards: 2, ..one.clone() }).is_empty());
        let gets = [5, 6].map(|gets| CoreStat { gets, ..CoreStat::default() });
        assert_eq!(of_cores(&Stat { shards: 2, per_core: gets.to_vec(), ..one }), [5, 6]);
    }
}
