use super::*;

#[test]
fn constraints_are_checked_and_solved() {
    let mut m = PassManager::from_names(&["cse", "normalize", "dce"]).unwrap();
    let e = m.validate().unwrap_err();
    assert!(
        e.title
            .contains("Expected normalize before cse but found cse at index 0"),
        "{}",
        e.title
    );
    m.solve_constraints().unwrap();
    assert_eq!(m.names(), ["normalize", "cse", "dce"]);
    m.add_constraint("dce", "normalize");
    m.add_constraint("cse", "dce");
    let e = m.solve_constraints().unwrap_err();
    assert!(e.title.starts_with("Circular dependency detected"), "{}", e.title);
    assert_eq!(m.names().len(), 3);
    assert!(PassManager::from_names(&["cze"]).is_err());
    assert_eq!(
        PassManager::from_names(&["inline", "cse"]).unwrap().before_normalize(),
        Some("cse")
    );
    assert_eq!(
        PassManager::from_names(&["normalize", "cse"])
            .unwrap()
            .before_normalize(),
        None
    );
}

#[test]
fn rounds_end_when_nothing_changes() {
    let mut count = 3;
    let mut runs = 0;
    let mut m = PassManager::new();
    m.steps = 10;
    m.add_pass("down", |_, _| {
        runs += 1;
        count -= (count > 0) as usize;
        Ok(count)
    });
    let report = m
        .run(&mut GraphModule::default(), &PassOptions::default(), &mut |_, _| {})
        .unwrap();
    assert_eq!(report.runs.len(), 3);
    drop(m);
    assert_eq!(runs, 3);
}

#[test]
fn requirements_checks_and_loops() {
    let named = |m: &GraphModule, n: &str| match m.name == n {
        true => Ok(()),
        false => Err(usage_error(format!("{} is not {n}", m.name))),
    };
    let rename = |to: &'static str| {
        move |m: &mut GraphModule, _: &mut PassContext| {
            m.name = to.into();
            Ok(1)
        }
    };
    let run = |m: &mut PassManager<'_>| m.run(&mut GraphModule::default(), &PassOptions::default(), &mut |_, _| {});
    let mut m = PassManager::new();
    m.add_pass_with("first", |m| named(m, ""), rename("a"), |m| named(m, "a"));
    m.add_pass_with("second", |m| named(m, "b"), rename("c"), |m| named(m, "c"));
    let e = run(&mut m).unwrap_err();
    assert_eq!(e.iter().next().unwrap().title, "a is not b");

    let mut m = PassManager::new();
    m.add_pass("first", rename("a"));
    m.add_pass("second", rename("b"));
    m.add_check(|m| named(m, "b"));
    assert!(run(&mut m).is_err());
    m.check_at_end = true;
    assert!(run(&mut m).is_ok());
    m.check_at_end = false;
    m.suppress_check_failures = true;
    assert_eq!(run(&mut m).unwrap().runs[0].remarks, ["a check failed: a is not b"]);
    m.add_constraints(&["second"], &["first"]);
    assert!(m.validate().is_err());

    let mut left = 3;
    let mut m = PassManager::new();
    m.add_pass(
        "down",
        loop_pass(
            |_, _| {
                left -= (left > 0) as usize;
                Ok(left)
            },
            10,
        ),
    );
    assert_eq!(run(&mut m).unwrap().runs[0].changed, 3);
}

#[test]
fn errors_name_the_passes_before() {
    let mut m = PassManager::new();
    m.add_pass("good", |_, _| Ok(1));
    m.add_pass("bad", |_, _| Err(usage_error("broken".into())));
    let e = m
        .run(&mut GraphModule::default(), &PassOptions::default(), &mut |_, _| {})
        .unwrap_err();
    let d = e.iter().next().unwrap();
    assert_eq!(
        d.notes,
        ["An error occurred when running the 'bad' pass after the following passes: [good]"]
    );
}
