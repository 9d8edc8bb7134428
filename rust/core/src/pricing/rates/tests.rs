use super::super::CostStyle;
use super::*;
use proptest::prelude::*;

const INPUT: usize = 0;
const OUTPUT: usize = 4;
const PER_REQUEST: usize = 10;

fn rates<const N: usize>(given: [(usize, &str); N]) -> Rates {
    let mut texts = [None; 11];
    for (place, text) in given {
        texts[place] = Some(text);
    }
    Rates::parse(&texts).unwrap()
}

fn full() -> Rates {
    let [input, cached, write, write_1h, output, reasoning] =
        ["5", "1", "6", "10", "20", "30"].map(Some);
    Rates::parse(&[
        input, cached, write, write_1h, output, reasoning, None, None, None, None, None,
    ])
    .unwrap()
}

/// One rate for every token.
fn alike(text: &str) -> Rates {
    let mut texts = [Some(text); 11];
    texts[PER_REQUEST] = None;
    Rates::parse(&texts).unwrap()
}

fn total(rates: &Rates, usage: Usage) -> Option<String> {
    rates.cost(&usage).map(|cost| cost.total())
}

#[test]
fn each_kind_of_token_has_its_price() {
    let usage = Usage {
        input_tokens: Some(1000),
        cached_input_tokens: Some(300),
        cache_write_tokens: Some(200),
        cache_write_1h_tokens: Some(50),
        output_tokens: Some(100),
        reasoning_tokens: Some(40),
        ..Usage::default()
    };
    let cost = full().cost(&usage).unwrap();
    let expected = "\"cost\":6600,\"cost_details\":{\"input_cost\":2500,\"cached_input_cost\":300,\
        \"cache_write_cost\":1400,\"output_cost\":2400,\"reasoning_cost\":1200}";
    let members = cost.members(CostStyle::OpenRouter).unwrap();
    assert_eq!(std::str::from_utf8(members.as_bytes()).unwrap(), expected);
}

#[test]
fn a_request_has_a_price_whatever_its_tokens() {
    let rates = rates([(INPUT, "0.5"), (PER_REQUEST, "0.0001")]);
    let usage = |input_tokens| Usage {
        input_tokens,
        ..Usage::default()
    };
    assert_eq!(total(&rates, usage(Some(3))).unwrap(), "1.5001");
    assert_eq!(total(&rates, usage(Some(0))).unwrap(), "0.0001");
    assert_eq!(total(&rates, usage(None)), None);
    let cost = rates.cost(&usage(Some(1))).unwrap();
    let shown = |style| {
        let members = cost.members(style).unwrap();
        String::from_utf8(members.as_bytes().to_vec()).unwrap()
    };
    assert_eq!(
        shown(CostStyle::OpenRouter),
        "\"cost\":0.5001,\"cost_details\":{\"input_cost\":0.5,\"cached_input_cost\":0,\"cache_write_cost\":0,\
         \"output_cost\":0,\"reasoning_cost\":0,\"request_cost\":0.0001}"
    );
    assert_eq!(
        shown(CostStyle::Cocoon),
        "\"prompt_total_cost\":500000,\"completion_total_cost\":0,\"total_cost\":500100"
    );
    assert_eq!(cost.in_picodollars().unwrap()[0], 500_100_000_000);
}

#[test]
fn a_part_that_claims_more_than_its_whole_is_cut() {
    let usage = Usage {
        input_tokens: Some(10),
        cached_input_tokens: Some(8),
        cache_write_tokens: Some(5),
        cache_write_1h_tokens: Some(9),
        output_tokens: Some(4),
        reasoning_tokens: Some(u64::MAX),
        input_audio_tokens: Some(7),
        ..Usage::default()
    };
    // 8 read from the cache, 2 written for an hour, no other input; 4 of reasoning.
    assert_eq!(total(&full(), usage).unwrap(), "148");
}

#[test]
fn audio_and_images_are_taken_from_the_text_where_they_have_a_rate() {
    let usage = || Usage {
        input_tokens: Some(100),
        input_audio_tokens: Some(30),
        input_image_tokens: Some(90),
        output_tokens: Some(10),
        output_audio_tokens: Some(4),
        output_image_tokens: Some(3),
        ..Usage::default()
    };
    let text = [(INPUT, "1"), (OUTPUT, "2")];
    assert_eq!(total(&rates(text), usage()).unwrap(), "120");
    let audio = [(INPUT, "1"), (OUTPUT, "2"), (6, "10"), (8, "20")];
    assert_eq!(total(&rates(audio), usage()).unwrap(), "462");
    let media = [(6, "10"), (7, "0.5"), (OUTPUT, "2"), (9, "0")];
    assert_eq!(total(&rates(media), usage()).unwrap(), "349");
}

#[test]
fn a_rate_that_is_needed_and_missing_makes_the_cost_unknown() {
    let usage = |input, output| Usage {
        input_tokens: input,
        output_tokens: output,
        ..Usage::default()
    };
    let input_only = rates([(INPUT, "1")]);
    assert_eq!(total(&input_only, usage(Some(3), Some(0))).unwrap(), "3");
    assert_eq!(total(&input_only, usage(Some(3), None)).unwrap(), "3");
    assert_eq!(total(&input_only, usage(Some(3), Some(1))), None);
    assert_eq!(total(&full(), usage(None, Some(1))), None);
    assert_eq!(total(&rates([]), usage(Some(0), Some(0))).unwrap(), "0");
}

#[test]
fn a_tier_holds_for_the_whole_request_above_its_threshold() {
    let tiers = vec![(200, rates([(INPUT, "3")])), (100, rates([(INPUT, "2")]))];
    let tariff = Tariff::new(rates([(INPUT, "1")]), tiers);
    for (tokens, expected) in [(100, "100"), (101, "202"), (200, "400"), (201, "603")] {
        let usage = Usage {
            input_tokens: Some(tokens),
            ..Usage::default()
        };
        assert_eq!(tariff.cost(&usage).unwrap().total(), expected);
    }
    assert!(tariff.cost(&Usage::default()).is_none());
}

#[test]
fn a_rate_is_a_plain_decimal_number() {
    for text in ["0", "00.50", "1.0", "123456789012345678901234.000000"] {
        assert!(decimal(text).is_ok(), "{text}");
    }
    assert_eq!(decimal("00.0120"), Ok((U256::from(12_u8), 3)));
    for text in [
        "", ".", "1.", ".5", "-1", "+1", "1e3", "NaN", "1_0", " 1", "1.2.3", "١",
    ] {
        assert_eq!(decimal(text), Err(RateError::NotDecimal), "{text}");
    }
    let fine = format!("0.{}1", "0".repeat(MAX_SCALE - 1));
    assert!(decimal(&fine).is_ok());
    assert!(decimal(&format!("{fine}000")).is_ok());
    for text in [format!("{fine}1"), "9".repeat(78)] {
        assert_eq!(decimal(&text), Err(RateError::TooManyDigits), "{text}");
    }
}

#[test]
fn rates_that_cannot_be_held_beside_each_other_are_refused() {
    let fine = format!("0.{}1", "0".repeat(MAX_SCALE - 1));
    let mut texts = [None; 11];
    texts[INPUT] = Some(&*fine);
    texts[OUTPUT] = Some("2");
    assert_eq!(Rates::parse(&texts).unwrap_err(), RateError::TooManyDigits);
    texts[OUTPUT] = Some("1");
    assert!(Rates::parse(&texts).is_ok());
}

#[test]
fn a_cost_that_does_not_fit_is_unknown() {
    let most = U256::MAX.to_string();
    let (whole, fraction) = most.split_at(most.len() - MILLIONTHS);
    let most = format!("{whole}.{fraction}");
    let rates = alike(&most);
    let usage = |input, cached, output| Usage {
        input_tokens: Some(input),
        cached_input_tokens: Some(cached),
        output_tokens: Some(output),
        ..Usage::default()
    };
    assert_eq!(total(&rates, usage(1, 0, 0)).unwrap(), most);
    assert_eq!(total(&rates, usage(0, 0, 1)).unwrap(), most);
    for usage in [
        usage(2, 0, 0),
        usage(2, 1, 0),
        usage(1, 0, 1),
        usage(0, 0, 2),
    ] {
        assert_eq!(total(&rates, usage), None);
    }
}

prop_compose! {
    fn usages()(counts in prop::array::uniform10(prop::option::of(
        prop_oneof![any::<u64>(), 0..100_u64, Just(u64::MAX)],
    ))) -> Usage {
        let [
            input_tokens, cached_input_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
            reasoning_tokens, input_audio_tokens, output_audio_tokens, input_image_tokens, output_image_tokens,
        ] = counts;
        Usage {
            input_tokens, cached_input_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
            reasoning_tokens, input_audio_tokens, output_audio_tokens, input_image_tokens, output_image_tokens,
            ..Usage::default()
        }
    }
}

/// What the configuration allows: 24 digits, of which up to 24 stand behind the point, per million tokens.
fn configured() -> impl Strategy<Value = String> {
    (0..10_u128.pow(24), 0..=24_usize).prop_map(|(number, scale)| {
        let mut text = format!("{number:0width$}", width = scale + 7);
        text.insert(text.len() - scale - 6, '.');
        text
    })
}

fn parsed(texts: &[Option<String>; 11]) -> Rates {
    Rates::parse(&texts.each_ref().map(Option::as_deref)).unwrap()
}

/// `text` as a number of 10^-`scale`.
fn whole(text: &str, scale: usize) -> Option<U256> {
    let (number, own) = decimal(text).ok()?;
    Some(number * power_of_ten(scale - own))
}

proptest! {
    #[test]
    fn no_token_is_billed_twice_or_not_at_all(usage in usages(), rate in 0..=u64::MAX >> 2) {
        let text = format!("0.{rate:020}");
        let cost = alike(&text).cost(&usage);
        prop_assert_eq!(cost.is_some(), usage.input_tokens.is_some());
        if let Some(cost) = cost {
            let billed = u128::from(usage.input_tokens.unwrap()) + u128::from(usage.output_tokens.unwrap_or(0));
            prop_assert_eq!(whole(&cost.total(), 20), Some(U256::from(billed) * U256::from(rate)));
        }
    }

    #[test]
    fn every_configured_price_has_a_cost_whose_parts_add_up(
        usage in usages(), texts in prop::array::uniform11(configured().prop_map(Some)),
    ) {
        let cost = parsed(&texts).cost(&usage);
        prop_assert_eq!(cost.is_some(), usage.input_tokens.is_some());
        if let Some(cost) = cost {
            let members = cost.members(CostStyle::OpenRouter).unwrap();
            let text = String::from_utf8(members.as_bytes().to_vec()).unwrap();
            let mut amounts = text.split([':', ',', '}']).filter_map(|part| whole(part, 30));
            let [total, input, cached, written, output, reasoning] =
                std::array::from_fn(|_| amounts.next().unwrap());
            // Not shown where it is nothing.
            let request = amounts.next().unwrap_or(U256::ZERO);
            prop_assert_eq!(input + cached + written + output + request, total);
            prop_assert!(reasoning <= output);
            prop_assert!(amounts.next().is_none());
        }
    }

    #[test]
    fn where_a_rate_is_missing_the_cost_is_unknown_or_does_not_depend_on_it(
        usage in usages(), texts in prop::array::uniform11(prop::option::of(configured())), other in configured(),
    ) {
        if let Some(cost) = parsed(&texts).cost(&usage) {
            let mut filled = texts;
            for text in &mut filled[INPUT..=OUTPUT] {
                text.get_or_insert_with(|| other.clone());
            }
            prop_assert_eq!(Some(cost.total()), total(&parsed(&filled), usage));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(texts in prop::array::uniform11(prop::option::of("[0-9.]{0,90}|.{0,9}"))) {
        let texts = texts.each_ref().map(Option::as_deref);
        let plain = |text: &&str| {
            let mut parts = text.split('.');
            let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            parts.clone().count() < 3 && parts.all(digits)
        };
        match Rates::parse(&texts) {
            Ok(_) => prop_assert!(texts.iter().flatten().all(plain)),
            Err(RateError::NotDecimal) => prop_assert!(!texts.iter().flatten().all(plain)),
            Err(RateError::TooManyDigits) => {}
        }
    }
}
