//! Checks JSON against a schema, for tests: the keywords of JSON Schema (draft 2020-12) that `docs/json.schema.json` uses,
//! and an error for any other.
//!
//! It is stricter than JSON Schema in one thing: an object may have no property that its schema does not describe. The
//! schema is open, so that readers bear what later versions add; its tests must notice what it does not tell of.
#![forbid(unsafe_code)]

use serde_json::{Map, Value};

/// The schema of `--json`.
pub const EVENT: &str = include_str!("../../../docs/json.schema.json");

/// The schema of `btrace types --json`.
pub const TYPES: &str = include_str!("../../../docs/types.schema.json");

/// A schema.
#[derive(Debug)]
pub struct Schema {
    root: Value,
}

/// Says nothing about a value.
const NOTES: [&str; 7] = ["$schema", "$id", "$defs", "title", "description", "examples", "$comment"];

/// References within references.
const DEPTH: u32 = 64;

impl Schema {
    /// That of an event of `--json`.
    ///
    /// # Errors
    /// The file is no JSON.
    pub fn event() -> Result<Schema, String> {
        Schema::new(EVENT)
    }

    /// That of a type of `btrace types --json`.
    ///
    /// # Errors
    /// The file is no JSON.
    pub fn types() -> Result<Schema, String> {
        Schema::new(TYPES)
    }

    /// Reads a schema.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn new(text: &str) -> Result<Schema, String> {
        serde_json::from_str(text).map(|root| Schema { root }).map_err(|e| format!("schema: {e}"))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Where it does not fit, and why; or what of the schema is not understood.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.fits(&self.root, value, "event", DEPTH)
    }

    fn fits(&self, schema: &Value, value: &Value, at: &str, depth: u32) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or_else(|| format!("{at}: references without end"))?;
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(schema) => schema,
            other => return Err(format!("{at}: nothing fits the schema {other}")),
        };
        for (keyword, wanted) in schema {
            let wrong = || format!("{at}: {keyword} {wanted}, but it is {value}");
            let number = |n: &Value| n.as_f64().ok_or_else(|| format!("{at}: schema: {keyword} {n}"));
            match keyword.as_str() {
                "type" => match wanted.as_array() {
                    Some(any) if any.iter().any(|t| is_of(t, value)) => {}
                    None if is_of(wanted, value) => {}
                    _ => return Err(wrong()),
                },
                "const" if wanted == value => {}
                "enum" if wanted.as_array().is_some_and(|any| any.contains(value)) => {}
                "const" | "enum" => return Err(wrong()),
                "minimum" if value.is_number() && number(value)? < number(wanted)? => return Err(wrong()),
                "maximum" if value.is_number() && number(value)? > number(wanted)? => return Err(wrong()),
                "minimum" | "maximum" => {}
                "$ref" => self.fits(self.referred(wanted, at)?, value, at, depth)?,
                "anyOf" => self.any_of(wanted, value, at, depth)?,
                "items" => {
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.fits(wanted, item, &format!("{at}[{n}]"), depth)?;
                    }
                }
                "required" => {
                    let has = |name: &Value| name.as_str().is_some_and(|n| value.get(n).is_some());
                    let missing = wanted.as_array().into_iter().flatten().find(|name| !has(name));
                    if let (true, Some(name)) = (value.is_object(), missing) {
                        return Err(format!("{at}: {name} is missing in {value}"));
                    }
                }
                "properties" | "additionalProperties" => {}
                note if NOTES.contains(&note) => {}
                other => return Err(format!("{at}: schema: keyword {other:?} is not known here")),
            }
        }
        match value {
            Value::Object(members) => self.properties(schema, members, at, depth),
            _ => Ok(()),
        }
    }

    fn properties(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        at: &str,
        depth: u32,
    ) -> Result<(), String> {
        let (known, more) = (schema.get("properties"), schema.get("additionalProperties"));
        if known.is_none() && more.is_none() {
            // Of its members this schema does not speak.
            return Ok(());
        }
        for (name, member) in members {
            match known.and_then(|k| k.get(name)).or(more) {
                Some(schema) => self.fits(schema, member, &format!("{at}.{name}"), depth)?,
                None => return Err(format!("{at}: {name:?} is not in the schema")),
            }
        }
        Ok(())
    }

    fn any_of(&self, wanted: &Value, value: &Value, at: &str, depth: u32) -> Result<(), String> {
        let mut reasons = Vec::new();
        for schema in wanted.as_array().into_iter().flatten() {
            match self.fits(schema, value, at, depth) {
                Ok(()) => return Ok(()),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!("{at}: fits none: {}", reasons.join("; ")))
    }

    fn referred(&self, reference: &Value, at: &str) -> Result<&Value, String> {
        let pointer = reference.as_str().and_then(|r| r.strip_prefix('#'));
        pointer.and_then(|p| self.root.pointer(p)).ok_or_else(|| format!("{at}: schema: no {reference}"))
    }
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        // Of more than 64 bits it is read as a number without a fraction.
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Value {
        json!({
            "target": "f", "module": null, "method": "fexit", "event": "exit",
            "time": "2026-01-01T00:00:00.000000000Z", "time_ns": 1, "cpu": 0, "pid": 1, "tid": 1, "comm": "sh", "duration_ns": null,
            "args": [{"name": "sk", "type": "struct sock *", "value": "0x1", "summary": "TCP",
                "pointee": {"port": {"value": 20480, "text": "80"}, "len": 5, "name": "x", "dev": {"error": "EFAULT"}}}]
        })
    }

    #[test]
    fn an_event_fits() {
        Schema::event().expect("JSON").check(&event()).expect("fits");
    }

    #[test]
    fn what_does_not_fit_is_found() {
        let schema = Schema::event().expect("JSON");
        let wrong = |change: fn(&mut Value)| {
            let mut event = event();
            change(&mut event);
            schema.check(&event).expect_err("does not fit")
        };
        assert!(wrong(|e| e["cpu"] = json!(-1)).contains("event.cpu: minimum"));
        assert!(wrong(|e| e["pid"] = json!("1")).contains("event.pid: type"));
        assert!(wrong(|e| e["event"] = json!("return")).contains("event.event"));
        assert!(wrong(|e| e["new"] = json!(1)).contains("\"new\" is not in the schema"));
        assert!(wrong(|e| drop(e.as_object_mut().expect("object").remove("comm"))).contains("comm"));
        assert!(wrong(|e| e["args"][0]["pointee"]["port"] = json!({"value": 1})).contains("pointee.port"));
        assert!(wrong(|e| e["args"][0]["pointee"]["port"]["txt"] = json!("80")).contains("fits none"));
        assert!(wrong(|e| e["stack"] = json!([{"address": "0x1"}])).contains("stack"));
    }

    #[test]
    fn a_schema_that_says_more_than_is_understood_is_an_error() {
        let schema = Schema::new(r#"{"pattern": "x"}"#).expect("JSON");
        assert!(schema.check(&json!("x")).is_err());
        assert!(Schema::new(r##"{"$ref": "#"}"##).expect("JSON").check(&json!(1)).is_err());
        assert!(Schema::new(r##"{"$ref": "#/$defs/none"}"##).expect("JSON").check(&json!(1)).is_err());
    }
}
