use super::*;

/// The text of an object, with the objects that it refers to.
fn show(pickle: &Pickle, id: Id) -> String {
    let list = |ids: &[Id]| ids.iter().map(|i| show(pickle, *i)).collect::<Vec<_>>().join(", ");
    match pickle.get(id) {
        Object::None => "None".into(),
        Object::Bool(b) => b.to_string(),
        Object::Int(n) => n.to_string(),
        Object::Text(t) => format!("{t:?}"),
        Object::Tuple(items) => format!("({})", list(items)),
        Object::List(items) => format!("[{}]", list(items)),
        Object::Dict(items) => {
            let items = items
                .iter()
                .map(|(k, v)| format!("{}: {}", show(pickle, *k), show(pickle, *v)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        Object::Global(name) => name.clone(),
        Object::Call { function, args } => format!("{}{}", show(pickle, *function), show(pickle, *args)),
        Object::Persistent(key) => format!("stored{}", show(pickle, *key)),
        Object::Other => "?".into(),
    }
}

fn read(bytes: &[u8]) -> Result<String, Bad> {
    Pickle::read(bytes).map(|p| show(&p, p.root()))
}

/// `pickle.dumps([-1, 300, 70000, 2**40, -(2**40), 1.5, None, True, {"a": (1, 2)}, b"x", OrderedDict(b=range(3))], protocol)`.
#[test]
fn values_of_all_protocols() {
    let second: &[u8] = b"\x80\x02]q\x00(J\xff\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\
        G?\xf8\x00\x00\x00\x00\x00\x00N\x88}q\x01X\x01\x00\x00\x00aq\x02K\x01K\x02\x86q\x03sc_codecs\nencode\nq\x04X\x01\x00\x00\x00xq\x05X\
        \x06\x00\x00\x00latin1q\x06\x86q\x07Rq\x08ccollections\nOrderedDict\nq\t)Rq\nX\x01\x00\x00\x00bq\x0bc__builtin__\nxrange\nq\x0cK\x00\
        K\x03K\x01\x87q\rRq\x0ese.";
    assert_eq!(
        read(second).unwrap(),
        "[-1, 300, 70000, 1099511627776, -1099511627776, ?, None, true, {\"a\": (1, 2)}, _codecs.encode(\"x\", \"latin1\"), \
         collections.OrderedDict()]"
    );
    let fifth: &[u8] = b"\x80\x05\x95\x83\x00\x00\x00\x00\x00\x00\x00]\x94(J\xff\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\
        \x8a\x06\x00\x00\x00\x00\x00\xffG?\xf8\x00\x00\x00\x00\x00\x00N\x88}\x94\x8c\x01a\x94K\x01K\x02\x86\x94sC\x01x\x94\x8c\x0bcollections\
        \x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94\x8c\x01b\x94\x8c\x08builtins\x94\x8c\x05range\x94\x93\x94K\x00K\x03K\x01\x87\x94R\x94se.";
    assert_eq!(
        read(fifth).unwrap(),
        "[-1, 300, 70000, 1099511627776, -1099511627776, ?, None, true, {\"a\": (1, 2)}, ?, collections.OrderedDict()]"
    );
}

#[test]
fn shared_objects_are_stored_once() {
    // Each list holds the one before it twice, so the text of the whole would have 2^40 numbers.
    let mut bytes = b"\x80\x02K\x07q\x00".to_vec();
    for i in 0..40u8 {
        bytes.extend([b'h', i, b'h', i, 0x86, b'q', i + 1]);
    }
    bytes.push(b'.');
    assert!(Pickle::read(&bytes).unwrap().objects.len() < 50);
}

#[test]
fn what_is_wrong_is_said() {
    for (bytes, text) in [
        (&b"\x80\x02"[..], "ends early"),
        (b"\x80\x02.", "empty stack"),
        (b"\x80\x02X\xff\xff\xff\xffab.", "ends early"),
        (b"\x80\x02ctorch\nTensor", "ends early"),
        (b"\x80\x02h\x05.", "does not exist"),
        (b"\x80\x02Nq\x05.", "out of order"),
        (b"\x80\x02t.", "lacks a mark"),
        (b"\x80\x02NNa.", "not a container"),
        // Objects before a mark are out of reach after it.
        (b"\x80\x02NN(\x86.", "empty stack"),
        (b"\x80\x02NN\x93.", "not text"),
        (b"\x80\x02\x82\x01.", "opcode 0x82"),
    ] {
        let (_, why) = read(bytes).unwrap_err().into_code_and_text();
        assert!(why.contains(text), "{why}");
    }
}
