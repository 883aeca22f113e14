//! Detection of repeated events that justify a reaction.

/// An event that counts once it has happened several times in a row. The necessary number doubles
/// with each reaction, so that the node reacts ever more rarely to functions that keep changing
/// their habits.
#[derive(Debug, Default)]
pub struct Habit {
    in_a_row: u32,
    followed: u32,
}

impl Habit {
    /// Records whether the event happened.
    pub fn note(&mut self, happened: bool) {
        self.in_a_row = if happened {
            self.in_a_row.saturating_add(1)
        } else {
            0
        };
    }

    /// Returns whether the event counts now, if the first reaction requires `first` events in a
    /// row.
    pub fn is_firm(&self, first: u32) -> bool {
        u64::from(self.in_a_row) >= u64::from(first) << self.followed.min(u32::BITS - 1)
    }

    /// Restarts the count, because earlier events do not predict later ones any more.
    pub fn begin_anew(&mut self) {
        self.in_a_row = 0;
    }

    /// Records a reaction.
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
