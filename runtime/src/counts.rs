//! Counts of one core, of which those of several cores are the sums.

/// Declares a struct of counts. Those of two cores add up field by field, by `+=`.
macro_rules! counts {
    (
        $(#[$about:meta])*
        $seen:vis struct $name:ident {
            $($(#[$counted:meta])* $field_seen:vis $field:ident: $number:ty,)+
        }
    ) => {
        $(#[$about])*
        $seen struct $name {
            $($(#[$counted])* $field_seen $field: $number,)+
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

pub(crate) use counts;

#[cfg(test)]
mod tests {
    use crate::provider::{Accepts, Counters, Newcomers};

    counts! {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        struct All {
            wide: u64,
            signed: i64,
            size: usize,
            narrow: u32,
        }
    }

    #[test]
    fn counts_add_up_field_by_field() {
        let mut sum = All { wide: 1, signed: -20, size: 300, narrow: 4000 };
        sum += All { wide: 5, signed: 6, size: 7, narrow: 8 };
        assert_eq!(sum, All { wide: 6, signed: -14, size: 307, narrow: 4008 });
    }

    #[test]
    fn what_counts_consist_of_adds_up_too() {
        let newcomers = |closed, memory| {
            let accepts = Accepts { memory, ..Accepts::default() };
            Newcomers { closed, accepts, ..Newcomers::default() }
        };
        let counters = |sends, newcomers| Counters { sends, newcomers, ..Counters::default() };
        let mut sum = counters(1, newcomers(2, 3));
        sum += counters(10, newcomers(20, 30));
        assert_eq!(sum, counters(11, newcomers(22, 33)));
    }
}
