//! Dates, times and timestamps as text: reading them, and writing them in the spelling of the producer.

use super::sink::Sink;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// How many digits of the second a writer prints, and whether it prints the second at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FractionForm {
    /// Always so many digits, 0 to 6. JavaScript's `toISOString` is 3.
    Fixed(u8),
    /// None or six: Python's `isoformat` and `str`.
    Python,
    /// None, three or six: `java.time.Instant`.
    Groups,
    /// As many as needed: Go's RFC 3339 with nanoseconds.
    Trimmed,
    /// As `Groups`, and `:00` is left out too: `java.time.LocalDateTime` and `LocalTime`.
    JavaLocal,
}

impl FractionForm {
    pub const ALL: [Self; 11] = [
        Self::Fixed(0),
        Self::Fixed(1),
        Self::Fixed(2),
        Self::Fixed(3),
        Self::Fixed(4),
        Self::Fixed(5),
        Self::Fixed(6),
        Self::Python,
        Self::Groups,
        Self::Trimmed,
        Self::JavaLocal,
    ];

    pub const fn code(self) -> u8 {
        match self {
            Self::Fixed(digits) => b'0' + digits,
            Self::Python => b'p',
            Self::Groups => b'g',
            Self::Trimmed => b't',
            Self::JavaLocal => b'j',
        }
    }

    /// Digits this writer prints for a fraction of `micros`.
    #[inline]
    fn digits(self, micros: u32) -> u8 {
        match self {
            Self::Fixed(digits) => digits,
            Self::Python => {
                if micros == 0 {
                    0
                } else {
                    6
                }
            }
            Self::Groups | Self::JavaLocal => match micros {
                0 => 0,
                micros if micros % 1000 == 0 => 3,
                _ => 6,
            },
            Self::Trimmed => {
                let mut rest = micros;
                let mut digits = if micros == 0 { 0 } else { 6 };
                while digits > 0 && rest.is_multiple_of(10) {
                    rest /= 10;
                    digits -= 1;
                }
                digits
            }
        }
    }

    #[inline]
    fn writes_second(self, second: u32, micros: u32) -> bool {
        self != Self::JavaLocal || second != 0 || micros != 0
    }

    /// Whether this writer would have printed `clock` as it was printed.
    pub fn prints(self, clock: &Clock) -> bool {
        let micros = u32::try_from(clock.micros % MICROS_PER_SECOND).unwrap_or(0);
        let second = u32::try_from(clock.micros / MICROS_PER_SECOND % 60).unwrap_or(0);
        self.writes_second(second, micros) == clock.second_written
            && (!clock.second_written || self.digits(micros) == clock.fraction_digits)
    }
}

/// A time of day as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    /// Microseconds since midnight.
    pub micros: i64,
    pub second_written: bool,
    pub fraction_digits: u8,
}

/// A timestamp as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimestampText<'a> {
    pub days: i32,
    pub separator: u8,
    pub clock: Clock,
    /// What follows the time: empty, `Z`, `+02:00`.
    pub zone: &'a [u8],
}

impl TimestampText<'_> {
    /// Microseconds since the epoch on the wall clock that was written.
    pub fn wall_micros(&self) -> i64 {
        i64::from(self.days) * MICROS_PER_DAY + self.clock.micros
    }
}

#[inline(always)]
fn two(text: &[u8], at: usize) -> Option<u32> {
    let tens = text.get(at)?.wrapping_sub(b'0');
    let ones = text.get(at + 1)?.wrapping_sub(b'0');
    (tens < 10 && ones < 10).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// `YYYY-MM-DD` at the start of `text`, years 0000 to 9999, as days since the epoch.
#[inline]
fn leading_date(text: &[u8]) -> Option<i32> {
    if text.get(4) != Some(&b'-') || text.get(7) != Some(&b'-') {
        return None;
    }
    let year = two(text, 0)? * 100 + two(text, 2)?;
    let month = two(text, 5)?;
    let day = two(text, 8)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if day == 0 || day > days_in_month {
        return None;
    }
    // Days from civil, Howard Hinnant: years begin in March, so the leap day is the last.
    let shifted = year + 400 - u32::from(month <= 2);
    let era = shifted / 400;
    let year_of_era = shifted % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = i64::from(era) * 146_097 + i64::from(day_of_era) - 719_468 - 146_097;
    i32::try_from(days).ok()
}

/// `HH:MM[:SS[.f]]` at the start of `text`, and where it ends. Up to six digits of fraction.
#[inline]
fn leading_clock(text: &[u8]) -> Option<(Clock, usize)> {
    let hour = two(text, 0)?;
    let minute = two(text, 3)?;
    if text[2] != b':' || hour > 23 || minute > 59 {
        return None;
    }
    let mut at = 5;
    let mut second = 0;
    let mut fraction = 0u32;
    let mut fraction_digits = 0u8;
    let second_written = text.get(5) == Some(&b':');
    if second_written {
        second = two(text, 6)?;
        at = 8;
        if second > 59 {
            return None;
        }
        if text.get(8) == Some(&b'.') {
            at = 9;
            while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
                if fraction_digits == 6 {
                    return None;
                }
                fraction = fraction * 10 + u32::from(digit);
                fraction_digits += 1;
                at += 1;
            }
            if fraction_digits == 0 {
                return None;
            }
            fraction *= 10u32.pow(u32::from(6 - fraction_digits));
        }
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let micros = seconds * MICROS_PER_SECOND + i64::from(fraction);
    Some((Clock { micros, second_written, fraction_digits }, at))
}

/// `YYYY-MM-DD` as days since the epoch.
pub(super) fn parse_date(text: &[u8]) -> Option<i32> {
    if text.len() == 10 { leading_date(text) } else { None }
}

/// `HH:MM[:SS[.ffffff]]`.
pub(super) fn parse_time(text: &[u8]) -> Option<Clock> {
    leading_clock(text).filter(|(_, end)| *end == text.len()).map(|(clock, _)| clock)
}

/// A date, `T` or a space, a time, and whatever follows as the zone.
#[inline]
pub(super) fn parse_timestamp(text: &[u8]) -> Option<TimestampText<'_>> {
    let days = leading_date(text)?;
    let separator = *text.get(10)?;
    if separator != b'T' && separator != b' ' {
        return None;
    }
    let (clock, end) = leading_clock(&text[11..])?;
    Some(TimestampText { days, separator, clock, zone: &text[11 + end..] })
}

/// `Z`, `+HH:MM`, `+HHMM` or `+HH` as minutes east of Greenwich.
pub(super) fn parse_zone(zone: &[u8]) -> Option<i32> {
    let (sign, rest) = match zone.split_first()? {
        (b'Z', []) => return Some(0),
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let minutes = match rest.len() {
        2 => two(rest, 0)? * 60,
        4 => two(rest, 0)? * 60 + two(rest, 2).filter(|minute| *minute < 60)?,
        5 if rest[2] == b':' => two(rest, 0)? * 60 + two(rest, 3).filter(|minute| *minute < 60)?,
        _ => return None,
    };
    let minutes = i32::try_from(minutes).ok().filter(|minutes| *minutes <= 18 * 60)?;
    Some(sign * minutes)
}

/// Microseconds in a minute, to move between a wall clock and UTC.
pub(super) const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;

#[inline(always)]
fn put_two(out: &mut [u8], at: usize, value: u32) {
    out[at] = b'0' + (value / 10 % 10) as u8;
    out[at + 1] = b'0' + (value % 10) as u8;
}

/// Writes `YYYY-MM-DD`; false, with nothing written, for years that four digits do not hold.
#[inline]
pub(super) fn write_date(days: i32, out: &mut impl Sink) -> bool {
    let mut text = *b"0000-00-00";
    let ok = fill_date(days, &mut text);
    if ok {
        out.extend_from_slice(&text);
    }
    ok
}

#[inline]
fn fill_date(days: i32, text: &mut [u8]) -> bool {
    // 0000-01-01 and 9999-12-31.
    if !(-719_528..=2_932_896).contains(&days) {
        return false;
    }
    let shifted = u32::try_from(days + 719_468 + 146_097).expect("in range above");
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u32::from(month <= 2) - 400;
    put_two(text, 0, year / 100);
    put_two(text, 2, year % 100);
    put_two(text, 5, month);
    put_two(text, 8, day);
    true
}

/// Writes a time of day; false, with nothing written, when `form` cannot hold its fraction.
#[inline]
pub(super) fn write_time(micros_of_day: i64, form: FractionForm, out: &mut impl Sink) -> bool {
    let mut text = *b"00:00:00.000000";
    match fill_time(micros_of_day, form, &mut text) {
        Some(length) => {
            out.extend_from_slice(&text[..length]);
            true
        }
        None => false,
    }
}

/// Fills `HH:MM:SS.ffffff` and says how much of it the form writes.
#[inline]
fn fill_time(micros_of_day: i64, form: FractionForm, text: &mut [u8]) -> Option<usize> {
    let micros_of_day = u64::try_from(micros_of_day).ok().filter(|micros| *micros < MICROS_PER_DAY.unsigned_abs())?;
    let micros = (micros_of_day % 1_000_000) as u32;
    let seconds = (micros_of_day / 1_000_000) as u32;
    let second = seconds % 60;
    put_two(text, 0, seconds / 3600);
    put_two(text, 3, seconds / 60 % 60);
    if !form.writes_second(second, micros) {
        return Some(5);
    }
    put_two(text, 6, second);
    let digits = form.digits(micros);
    if digits == 0 {
        return (micros == 0).then_some(8);
    }
    put_two(text, 9, micros / 10_000);
    put_two(text, 11, micros / 100);
    put_two(text, 13, micros);
    let unit = 10u32.pow(u32::from(6 - digits));
    micros.is_multiple_of(unit).then_some(9 + usize::from(digits))
}

/// Writes date, separator and time of a wall clock; false, with nothing written, when the form cannot hold it.
#[inline]
pub(super) fn write_timestamp(wall_micros: i64, separator: u8, form: FractionForm, out: &mut impl Sink) -> bool {
    let Ok(days) = i32::try_from(wall_micros.div_euclid(MICROS_PER_DAY)) else { return false };
    let mut text = *b"0000-00-00T00:00:00.000000";
    text[10] = separator;
    if !fill_date(days, &mut text[..10]) {
        return false;
    }
    match fill_time(wall_micros.rem_euclid(MICROS_PER_DAY), form, &mut text[11..]) {
        Some(length) => {
            out.extend_from_slice(&text[..11 + length]);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_is_read_as_written() {
        let mut text = Vec::new();
        for days in -719_528..=2_932_896 {
            text.clear();
            assert!(write_date(days, &mut text));
            assert_eq!(parse_date(&text), Some(days));
        }
        assert_eq!(parse_date(b"1970-01-01"), Some(0));
        assert_eq!(parse_date(b"2024-02-29"), Some(19_782));
        assert!(!write_date(2_932_897, &mut text));
    }

    #[test]
    fn impossible_dates_and_times_are_refused() {
        for text in ["2023-02-29", "2023-13-01", "2023-00-10", "2023-1-1", "20230101", "2023-04-31", ""] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
        for text in ["24:00:00", "12:60:00", "12:00:60", "12:00:00.", "12:00:00.1234567", "1:00:00", "12:00:00Z", ""] {
            assert_eq!(parse_time(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_fraction_form_prints_what_it_recognises() {
        let texts =
            ["10:00", "10:00:00", "10:00:05", "10:00:05.5", "10:00:05.500", "10:00:05.000250", "10:00:00.000000"];
        for text in texts {
            let clock = parse_time(text.as_bytes()).expect("a time");
            let mut recognised = 0;
            for form in FractionForm::ALL {
                let mut out = Vec::new();
                let same = write_time(clock.micros, form, &mut out) && out == text.as_bytes();
                assert_eq!(form.prints(&clock), same, "{text} {form:?}");
                recognised += usize::from(same);
            }
            assert!(recognised > 0, "{text}");
        }
    }

    #[test]
    fn zones_are_minutes_east() {
        for (zone, minutes) in [
            ("Z", Some(0)),
            ("+00:00", Some(0)),
            ("+0530", Some(330)),
            ("-08", Some(-480)),
            ("", None),
            ("CET", None),
            ("+24:00", None),
        ] {
            assert_eq!(parse_zone(zone.as_bytes()), minutes, "{zone}");
        }
    }
}
