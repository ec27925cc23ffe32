use super::*;

/// A module that has every attribute and no separately declared part.
struct Everything;

impl Below for Everything {
    fn has_attr(&self, _: &str) -> bool {
        true
    }

    fn is_known(&self) -> bool {
        true
    }

    fn part(&self, _: &str) -> Option<Constructed<'_>> {
        None
    }
}

#[test]
fn every_form_names_an_op_and_its_parameters() {
    for form in all_classes().filter_map(forms_of).flatten() {
        let op = by_name(form.op).unwrap_or_else(|| panic!("{}: no op `{}`", form.name, form.op));
        let positional = op.schema.params.iter().filter(|p| !p.keyword_only).count();
        let by_position = form.args.iter().filter(|(n, _)| n.is_none()).count();
        assert!(
            by_position <= positional,
            "{}: too many arguments for `{}`",
            form.name,
            op.name
        );
        for (n, _) in &form.args {
            if let Some(n) = n {
                assert!(
                    op.schema.index_of(n).is_some(),
                    "{}: `{}` has no parameter `{n}`",
                    form.name,
                    op.name
                );
            }
        }
    }
}

#[test]
fn forms_say_the_sizes_of_all_weights() {
    // Skips sizes that only a weights file determines, and classes that compute sizes in ways forms cannot express.
    let losses = |name: &str| name.ends_with("Loss") || name.starts_with("FractionalMaxPool");
    let of_parts = ["TransformerEncoder", "TransformerDecoder", "AdaptiveLogSoftmaxWithLoss"];
    for form in all_classes().filter_map(forms_of).flatten() {
        for (_, e) in &form.args {
            let ArgExpr::Attr(a) = e else { continue };
            let known = a.sizes.is_some() || losses(form.name) || of_parts.contains(&form.name);
            assert!(known, "{}: the sizes of `{}` are not said", form.name, a.name);
        }
    }
}

#[test]
fn forms_are_parsed_and_expanded() {
    let c = form::parse("Foo(a, b=[1, 2], *, bias=True) = reshape(input, @w, @b if bias, $1?, 'x', a)").unwrap();
    assert_eq!((c.name, c.op, c.params.len(), c.args.len()), ("Foo", "reshape", 4, 6));
    assert!(matches!(
        &c.args[2].1,
        ArgExpr::Attr(ModuleAttr {
            name: "b",
            need: Need::When(_),
            ..
        })
    ));
    assert!(matches!(
        c.args[3].1,
        ArgExpr::Input {
            index: 1,
            name: None,
            optional: true
        }
    ));
    assert!(form::parse("Foo(a) = reshape(input, @b if bias)").is_err());
}

#[test]
fn constructor_errors_say_what_is_wrong() {
    let of = |class, args: &[Literal], kwargs: &[(Arc<str>, Literal)], inputs| {
        expand_module(Constructed { class, args, kwargs }, inputs, &[], &Everything)
    };
    let e = of("Flaten", &[], &[], 1).unwrap_err();
    assert_eq!(e.code, Code::E0201);
    let e = of("Unflatten", &[Val::int(1)], &[], 1).unwrap_err();
    assert_eq!(
        e.title,
        "`Unflatten`: constructor argument `unflattened_size` is missing"
    );
    let e = of("Flatten", &[], &[("start".into(), Val::int(1))], 1).unwrap_err();
    assert!(e.title.contains("has no constructor parameter `start`"), "{}", e.title);
    let e = of("Flatten", &[], &[], 2).unwrap_err();
    assert_eq!(
        e.title,
        "module `Flatten` is called with 2 arguments, but takes at most 1"
    );
    let ok = of("torch.nn.modules.flatten.Flatten", &[], &[], 1).unwrap();
    assert_eq!(
        ok.args,
        [
            ArgumentSource::Input(0),
            ArgumentSource::Value(Val::int(1)),
            ArgumentSource::Value(Val::int(-1))
        ]
    );
}
