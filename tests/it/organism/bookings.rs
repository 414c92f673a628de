//! The listeners `hotel` and `bank`, and their ledger. A workflow undoes calls of these listeners.

use super::House;

/// Config sections of the listeners `hotel` and `bank`. A call of `cancel` names the number of the
/// booking.
macro_rules! booking_listeners {
    () => {
        r#"
[listeners.hotel]
command = ["./booker.pl", "ledger"]
schema = "booking.xsd"
accepts = ["book", "cancel"]
replies = ["booked", "cancelled", "booking-failed"]
attempts = 1
undo.book = { payload = "cancel", with = { number = "reply/number" } }

[listeners.bank]
command = ["./booker.pl", "ledger"]
schema = "booking.xsd"
accepts = ["charge", "notify"]
replies = ["charge-failed", "notified"]
"#
    };
}

pub(super) use booking_listeners;

/// Last line of the bank's config section. Tests replace it to add settings.
pub const BANK: &str = "replies = [\"charge-failed\", \"notified\"]\n";

/// Copies the program of the listeners `hotel` and `bank`, and the schema of the program.
pub fn copy_booker(house: &House) {
    for file in ["booker.pl", "booking.xsd"] {
        house.copy(file);
    }
}

/// The lines of the ledger.
pub fn ledger(house: &House) -> Vec<String> {
    let text = std::fs::read_to_string(house.path("ledger")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
