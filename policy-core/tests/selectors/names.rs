//! Every enum prints a name that parses back, and refuses any other with a sentence.

use core::fmt::{Debug, Display};
use core::str::FromStr;

use policy_core::{Need, PreemptionPolicy, RequestPriority, Separator, UnknownName};

fn assert_round_trip<T>(all: &[T], names: &[&str])
where
    T: Copy + Debug + Display + PartialEq + FromStr<Err = UnknownName>,
{
    let printed: Vec<_> = all.iter().map(T::to_string).collect();
    assert_eq!(printed, names);
    for (value, name) in all.iter().zip(names) {
        assert_eq!(name.parse(), Ok(*value));
        for wrong in [
            name.to_uppercase(),
            format!(" {name}"),
            format!("{name}x"),
            String::new(),
        ] {
            let error = wrong.parse::<T>().unwrap_err();
            assert_eq!(error.value(), wrong);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[test]
fn every_enum_prints_and_parses_its_names() {
    assert_round_trip(RequestPriority::ALL, &["low", "normal", "high"]);
    assert_round_trip(PreemptionPolicy::ALL, &["longest-first", "lowest-priority"]);
    assert_round_trip(Need::ALL, &["seat", "blocks"]);
    let separators = ["exempt", "priority", "worn", "generated-tokens", "id"];
    assert_round_trip(Separator::ALL, &separators);
}

#[test]
fn a_name_pads_like_a_string() {
    assert_eq!(format!("[{:>6}]", RequestPriority::Low), "[   low]");
}

#[test]
fn a_lower_number_is_more_urgent() {
    use RequestPriority::{High, Low, Normal};
    for (number, class) in [
        (i64::MIN, High),
        (-1, High),
        (0, Normal),
        (1, Low),
        (i64::MAX, Low),
    ] {
        assert_eq!(RequestPriority::from(number), class);
        assert_eq!(number.to_string().parse(), Ok(class));
    }
}

#[test]
fn a_refused_value_is_named_with_those_accepted() {
    let error = "urgent".parse::<RequestPriority>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown priority \"urgent\": expected one of low, normal, high, \
         an integer (lower is more urgent)"
    );
    let error = "seats".parse::<Need>().unwrap_err();
    assert_eq!(error.accepted(), ["seat", "blocks"]);
}

#[test]
fn a_long_value_is_cut_at_a_character() {
    // 31 bytes, then a character of two: it does not fit in 32.
    let long = format!("{}é and more", "x".repeat(31));
    let error = long.parse::<Need>().unwrap_err();
    assert_eq!(error.value(), "x".repeat(31));
    assert!(error.to_string().contains("xxx\"…:"), "{error}");
    let exact = "y".repeat(32);
    let error = exact.parse::<Need>().unwrap_err();
    assert_eq!(error.value(), exact);
    assert!(!error.to_string().contains('…'));
}

#[test]
fn a_control_character_in_a_refused_value_is_escaped() {
    let error = "a\nb".parse::<Need>().unwrap_err();
    assert!(error.to_string().contains(r#""a\nb""#), "{error}");
}
