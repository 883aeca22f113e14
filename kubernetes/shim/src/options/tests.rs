use super::*;

fn annotations(said: &[(&str, &str)]) -> BTreeMap<String, String> {
    let said = said.iter();
    said.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
        .collect()
}

fn said(artifact: &[(&str, &str)], pod: &[(&str, &str)]) -> Said<'static> {
    Said {
        artifact: annotations(artifact),
        pod: annotations(pod),
        name: "hello",
        ..Said::default()
    }
}

fn arguments(artifact: &[(&str, &str)], pod: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let process = said(artifact, pod).process();
    Ok(told(process.map_err(|error| error.to_string())?))
}

/// Returns the command line, with the contents of files in place of their names.
fn told(process: Process) -> Vec<String> {
    let mut arguments = process.arguments.into_iter();
    let first: Vec<String> = arguments.by_ref().take(4).collect();
    assert_eq!(first, ["/bin/faasw", "pod", MODULE, "--name=hello"]);
    let in_files = |argument: String| {
        let path = argument.split_once('=').unwrap_or_default().1;
        let Some(table) = process.tables.iter().find(|table| table.path == path) else {
            return vec![argument];
        };
        let option = argument.split_once("-file=").unwrap().0;
        let pairs = table.pairs.iter();
        pairs
            .map(|(name, value)| format!("{option}={name}={value}"))
            .collect()
    };
    arguments.flat_map(in_files).collect()
}

#[test]
fn an_artifact_says_what_concerns_itself() {
    let said = arguments(
        &[
            ("memory", "67108864"),
            ("timeout", "1s 500ms"),
            ("env", r#"["A=b=c", "B="]"#),
            ("arg", r#"["--listen=0.0.0.0:1"]"#),
        ],
        &[],
    );
    let expected = [
        "--args=--listen=0.0.0.0:1",
        "--memory=64",
        "--timeout=1s 500ms",
        "--env=A=b=c",
        "--env=B=",
    ];
    assert_eq!(said.unwrap(), expected);
    assert!(arguments(&[], &[]).unwrap().is_empty());
}

#[test]
fn the_pod_wins_name_by_name_or_as_a_whole() {
    let mut said = said(
        &[
            ("memory", "67108864"),
            ("env", r#"["A=1", "B=1"]"#),
            ("arg", r#"["a", "b"]"#),
            ("config", r#"["k=1"]"#),
        ],
        &[("memory", "1048576"), ("env", r#"["B=2", "C=2"]"#)],
    );
    said.arguments = ["/hello.wasm", "c"].map(str::to_owned).into();
    said.environment = ["C=3", "PORT=81", "PATH=/bin", "LD_PRELOAD=/x", "FAASW_X=1"]
        .map(str::to_owned)
        .into();
    let process = said.process().unwrap();
    assert_eq!(process.environment, ["PORT=81"]);
    // No value is visible on the command line.
    let line = process.arguments.join(" ");
    assert!(
        !line.contains("/x") && !line.contains("LD_PRELOAD"),
        "{line}"
    );
    assert_eq!(
        told(process),
        [
            "--args=c",
            "--memory=1",
            "--env=A=1",
            "--env=B=2",
            "--env=C=3",
            "--env=LD_PRELOAD=/x",
            "--config=k=1",
        ]
    );
}

#[test]
fn what_an_artifact_asks_for_is_given_by_the_pod() {
    let asking: &[(&str, &str)] = &[("allow-outbound", r#"["https://a.test"]"#)];
    let refused = arguments(asking, &[]).unwrap_err();
    assert!(refused.contains("dev.faasw.accept"), "{refused}");
    let given = ["--allow-outbound=https://a.test"];
    for accept in ["outbound", "all", "kv, outbound"] {
        let said = arguments(asking, &[("accept", accept)]);
        assert_eq!(said.unwrap(), given, "{accept}");
    }
    for accept in ["none", "limits"] {
        let said = arguments(asking, &[("accept", accept)]);
        assert!(said.unwrap().is_empty(), "{accept}");
    }
    // Polling uses processor time even without requests.
    assert!(arguments(&[("poll", "auto")], &[]).is_err());
    assert!(arguments(&[("poll", "off")], &[]).unwrap().is_empty());
    let given = arguments(&[("poll", "auto")], &[("accept", "limits")]);
    assert_eq!(given.unwrap(), ["--poll=auto"]);
    // The pod's own options need no grant.
    let own = arguments(asking, &[("allow-outbound", r#"["https://b.test"]"#)]);
    assert_eq!(own.unwrap(), ["--allow-outbound=https://b.test"]);
    for wrong in ["", "everything", "none,outbound"] {
        assert!(arguments(&[], &[("accept", wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn what_pods_have_not_is_refused_unless_it_is_not_wanted() {
    for name in ["secret", "bind-secret", "host"] {
        let asking: &[(&str, &str)] = &[(name, r#"["x"]"#)];
        for pod in [&[][..], &[("accept", "all")]] {
            assert!(arguments(asking, pod).is_err(), "{name}");
        }
        assert!(
            arguments(asking, &[("accept", "none")]).unwrap().is_empty(),
            "{name}"
        );
        assert!(arguments(&[], asking).is_err(), "{name}");
    }
}

#[test]
fn what_nobody_can_say_is_refused() {
    for (name, value) in [
        ("something-new", "x"),
        ("", "x"),
        ("allow-private", r#"["10.0.0.0/8"]"#),
        ("poll", "auto"),
        ("accept", "all"),
        ("data-dir", "/"),
        ("listen", "0.0.0.0:1"),
        ("memory", "1"),
        ("memory", "0"),
        ("memory", "-1048576"),
        ("env", "A=b"),
        ("env", r#"["A"]"#),
        ("env", r#"["=b"]"#),
        ("env", r#"["A=\u0000"]"#),
        ("warmup-request", r#"["@/etc/shadow"]"#),
    ] {
        assert!(arguments(&[(name, value)], &[]).is_err(), "{name} {value}");
    }
    assert!(arguments(&[], &[("listen", "0.0.0.0:1")]).is_err());
    let much = format!("[\"A={}\"]", "x".repeat(ARGUMENT_MAX + 1));
    assert!(arguments(&[("env", &much)], &[]).is_err());
    let many: Vec<String> = { 0..2 }
        .map(|at| format!("A{at}={}", "x".repeat(TABLE_MAX / 2)))
        .collect();
    let refused = arguments(&[("env", &serde_json::json!(many).to_string())], &[]);
    assert!(refused.unwrap_err().contains("/function.env.json"));
    let much = "x".repeat(SAID_MAX);
    assert!(arguments(&[("init", &much)], &[]).is_err());
}

#[test]
fn all_that_artifacts_can_say_is_known() {
    let documented = include_str!("../../../../docs/oci.md");
    let rows = documented
        .lines()
        .filter(|line| line.starts_with("| `dev.faasw."));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names: Vec<&str> = quoted
        .map(|name| name.trim_start_matches("dev.faasw").trim_start_matches('.'))
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let said = known(name).map_err(|error| error.to_string());
        assert!(said.is_ok(), "{said:?}");
    }
}

#[test]
fn variables_of_the_node_are_checked() {
    let with = |variable: &str| {
        let mut said = said(&[], &[]);
        said.environment = vec![variable.to_owned()];
        said.process()
    };
    let process = with("FAASW_HEALTH_PORT=9191").unwrap();
    assert_eq!(process.arguments[4..], ["--health-listen=[::]:9191"]);
    assert!(with("FAASW_HEALTH_PORT=x").is_err());
    assert!(with("A=\0").is_err());
}

#[test]
fn files_are_where_the_artifact_or_the_pod_says() {
    let files = |artifact: &[(&str, &str)], pod: &[(&str, &str)], has_files| {
        let mut said = said(artifact, pod);
        said.has_files = has_files;
        said.process().map(|process| process.function[1..].to_vec())
    };
    let at = [("files-at", "/site")];
    assert_eq!(files(&[], &[], true).unwrap(), ["--files=/function.files"]);
    assert_eq!(
        files(&at, &[], true).unwrap(),
        ["--files=/function.files:/site"]
    );
    assert_eq!(
        files(&at, &[("files-at", "/")], true).unwrap(),
        ["--files=/function.files:/"]
    );
    assert!(files(&at, &[], false).is_err());
    for wrong in ["site", "", "..", ":/x"] {
        assert!(files(&[("files-at", wrong)], &[], true).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_the_nodes_is_not_the_functions() {
    let mut said = said(
        &[("memory", "1048576"), ("arg", r#"["--drain-delay=1"]"#)],
        &[
            ("drain-delay", "0"),
            ("log-format", "json"),
            ("min-warm", "1"),
            ("allow-private", r#"["10.0.0.0/8"]"#),
            ("poll", "off"),
        ],
    );
    said.hostname = "pod-1";
    said.environment = ["A=1", "PORT=81", "FAASW_HEALTH_PORT=82", "HOSTNAME=pod-1"]
        .map(str::to_owned)
        .into();
    let process = said.process().unwrap();
    assert_eq!(
        process.function,
        [
            "--name=hello",
            "--args=--drain-delay=1",
            "--memory=1",
            "--env-file=/function.env.json"
        ]
    );
    for argument in &process.function {
        assert!(process.arguments.contains(argument), "{argument}");
    }
    assert!(process.arguments.contains(&"--min-warm=1".to_owned()));
}

#[test]
fn a_function_is_called_as_its_container_if_it_can_be() {
    let long = "x".repeat(64);
    for (container, name) in [
        ("hello-1", "hello-1"),
        ("healthz", "function"),
        ("", "function"),
        ("A", "function"),
        ("-x", "function"),
        (&long, "function"),
    ] {
        assert_eq!(function_name(container), name);
    }
}
