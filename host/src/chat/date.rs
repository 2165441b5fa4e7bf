//! `strftime_now` for templates, from a moment that is an argument.

use minijinja::{Error, ErrorKind, Value};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The function that formats `now`, in seconds since 1970 (UTC).
pub(super) fn function(now: u64) -> Value {
    Value::from_function(move |format: String| strftime(now, &format))
}

fn strftime(now: u64, format: &str) -> Result<String, Error> {
    let moment = Moment::new(now);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' => out.push_str(&moment.field(characters.next().unwrap_or('%'))?),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// A moment by the Gregorian calendar.
struct Moment {
    year: u64,
    /// From 0.
    month: usize,
    /// From 1.
    day: u64,
    /// From 1.
    day_of_year: u64,
    /// From 0, Sunday.
    weekday: usize,
    second_of_day: u64,
}

impl Moment {
    fn new(seconds: u64) -> Self {
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        // Day 0 was a Thursday.
        let weekday = ((days + 4) % 7) as usize;
        let (mut year, mut left) = (1970 + 400 * (days / 146_097), days % 146_097);
        while left >= year_days(year) {
            left -= year_days(year);
            year += 1;
        }
        let day_of_year = left + 1;
        let mut month = 0;
        while left >= month_days(year, month) {
            left -= month_days(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: left + 1,
            day_of_year,
            weekday,
            second_of_day,
        }
    }

    fn field(&self, directive: char) -> Result<String, Error> {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let month = MONTHS.get(self.month).copied().unwrap_or_default();
        let weekday = DAYS.get(self.weekday).copied().unwrap_or_default();
        Ok(match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month + 1),
            'B' => month.into(),
            'b' | 'h' => month.chars().take(3).collect(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'A' => weekday.into(),
            'a' => weekday.chars().take(3).collect(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => if hour < 12 { "AM" } else { "PM" }.into(),
            'M' => format!("{minute:02}"),
            'S' => format!("{:02}", self.second_of_day % 60),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month + 1, self.day),
            'T' => format!("{hour:02}:{minute:02}:{:02}", self.second_of_day % 60),
            'Z' => "UTC".into(),
            'z' => "+0000".into(),
            '%' => "%".into(),
            other => {
                let message = format!("strftime_now does not know %{other}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        })
    }
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn year_days(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

const fn month_days(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let cases = [
            (
                0,
                "%A %d %B %Y %H:%M:%S",
                "Thursday 01 January 1970 00:00:00",
            ),
            (951_782_400, "%a %F %j %p %I", "Tue 2000-02-29 060 AM 12"),
            (
                1_732_999_999,
                "%d %b %Y, %T %Z%z",
                "30 Nov 2024, 20:53:19 UTC+0000",
            ),
            // The last second of February 2100, which is no leap year.
            (4_107_542_399, "%e %y%m %a 100%%", "28 0002 Sun 100%"),
        ];
        for (seconds, format, expected) in cases {
            assert_eq!(strftime(seconds, format).unwrap(), expected);
        }
        assert!(strftime(0, "%Q").is_err());
    }
}
