//! A macro for closed sets of types, which are dispatched statically.

/// Defines a macro for an enum whose variants have one value each:
/// `contract::variants!(each, Shape: Circle, Square)` defines `each!(shape, one => expression)`,
/// which evaluates the expression on the value inside the shape.
#[macro_export]
macro_rules! variants {
    ($each:ident, $enum:ident: $($variant:ident),+ $(,)?) => {
        $crate::variants!(($) $each, $enum: $($variant),+);
    };
    // The dollar sign of the new macro's arguments comes as an argument.
    (($d:tt) $each:ident, $enum:ident: $($variant:ident),+) => {
        macro_rules! $each {
            ($d value:expr, $d one:ident => $d what:expr) => {
                match $d value {
                    $($enum::$variant($d one) => $d what,)+
                }
            };
        }
    };
}

#[cfg(test)]
mod tests {
    enum Number {
        Small(u8),
        Large(u64),
    }

    variants!(each, Number: Small, Large);

    #[test]
    fn the_value_of_each_variant_is_reached() {
        let bits = |number: Number| each!(number, one => one.count_zeros());
        assert_eq!([bits(Number::Small(1)), bits(Number::Large(1))], [7, 63]);
    }
}
