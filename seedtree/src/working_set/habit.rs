//! When something that keeps happening is worth doing something about.

/// Something that counts when it happens several times in a row, and twice as many
/// times each time that it has: functions that keep changing their habits are
/// followed ever more rarely.
#[derive(Debug, Default)]
pub struct Habit {
    in_a_row: u32,
    followed: u32,
}

impl Habit {
    /// It happened now, or did not.
    pub fn note(&mut self, happened: bool) {
        self.in_a_row = if happened {
            self.in_a_row.saturating_add(1)
        } else {
            0
        };
    }

    /// Whether it counts now, where it did the first time after `first`.
    pub fn is_firm(&self, first: u32) -> bool {
        u64::from(self.in_a_row) >= u64::from(first) << self.followed.min(u32::BITS - 1)
    }

    /// What happened so far says nothing of what comes.
    pub fn begin_anew(&mut self) {
        self.in_a_row = 0;
    }

    /// It was followed.
    pub fn follow(&mut self) {
        self.begin_anew();
        self.followed = self.followed.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_habit_that_was_followed_for_ever_takes_for_ever() {
        let mut habit = Habit::default();
        habit.follow();
        habit.followed = u32::MAX;
        habit.in_a_row = u32::MAX;
        assert!(!habit.is_firm(4));
        habit.follow();
        assert_eq!(habit.followed, u32::MAX);
    }
}
