//! Runs every model.

macro_rules! models {
    ($($model:ident)*) => {
        $(
            #[test]
            fn $model() {
                haulage_models::$model();
            }
        )*
    };
}

models! {
    a_core_that_sleeps_is_woken_for_every_post
    what_is_read_is_not_freed
    each_value_is_taken_away_once
    a_copy_replaces_what_is_there_or_nothing
    a_key_is_inserted_once
    every_block_comes_home_once
    a_block_can_be_sent_home_again_at_once
    a_common_block_comes_home_after_all_reads
    the_books_are_freed_with_every_block_home
    a_batch_is_seen_whole_or_not_at_all
    a_line_is_written_again_once_it_was_taken
    records_of_several_lines_pass_the_end_of_the_ring
    a_record_is_whole_in_its_receive
    a_series_is_seen_whole
    nobody_sleeps_while_there_is_a_record
    what_a_peer_copies_is_not_used_meanwhile
    a_peer_that_is_refused_at_the_end_knows_why
}
