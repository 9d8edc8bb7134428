//! An upstream's request in neutral form: turns with a role and parts, or items that are no message.

#![allow(
    dead_code,
    reason = "not every test that shares this file reads every protocol"
)]

use serde_json::{Value, json};

/// Which protocol a body is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Responses,
    Messages,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Turns in their order.
pub(crate) fn turns(form: Form, body: &Value) -> Vec<Value> {
    match form {
        Form::Chat => list(&body["messages"]).iter().map(chat_message).collect(),
        Form::Messages => list(&body["messages"]).iter().map(message).collect(),
        Form::Responses => list(&body["input"]).iter().map(item).collect(),
    }
}

/// The instructions in front.
pub(crate) fn instructions(form: Form, body: &Value) -> Value {
    match form {
        Form::Chat => Value::Null,
        Form::Responses => body["instructions"].clone(),
        Form::Messages => match &body["system"] {
            Value::Array(blocks) => blocks.iter().map(|block| block["text"].clone()).collect(),
            Value::Null => Value::Null,
            text => json!([text]),
        },
    }
}

/// The tools, without what is the same for all of them.
pub(crate) fn tools(form: Form, body: &Value) -> Vec<Value> {
    let inner = |tool: &Value| match form {
        Form::Chat => tool["function"].clone(),
        Form::Responses => {
            let mut tool = tool.clone();
            tool.as_object_mut().unwrap().remove("type");
            tool
        }
        Form::Messages => tool.clone(),
    };
    list(&body["tools"]).iter().map(inner).collect()
}

/// The texts, images and files of a content.
fn content(content: &Value) -> Vec<Value> {
    match content {
        Value::Null => Vec::new(),
        Value::String(text) => vec![json!({"text": text})],
        Value::Array(parts) => parts.iter().map(part).collect(),
        other => panic!("a content is {other}"),
    }
}

fn part(part: &Value) -> Value {
    match part["type"].as_str().unwrap() {
        "text" | "input_text" | "output_text" => json!({"text": part["text"]}),
        "refusal" => json!({"refusal": part["refusal"]}),
        "image_url" => json!({"image": part["image_url"]["url"]}),
        "input_image" => json!({"image": part["image_url"]}),
        "file" => {
            json!({"file": {"filename": part["file"]["filename"], "data": part["file"]["file_data"]}})
        }
        "input_file" if part["file_url"].is_string() => json!({"file": {"url": part["file_url"]}}),
        "input_file" => json!({"file": {"filename": part["filename"], "data": part["file_data"]}}),
        _ => part.clone(),
    }
}

fn chat_message(message: &Value) -> Value {
    if message["role"] == "tool" {
        let text = message["content"].as_str().unwrap();
        return json!({"role": "tool", "parts": [{"result": {"id": message["tool_call_id"], "text": text}}]});
    }
    let mut parts = Vec::new();
    for name in ["reasoning_content", "reasoning"] {
        if let Some(text) = message[name].as_str() {
            parts.push(json!({"thinking": text}));
        }
    }
    parts.extend(content(&message["content"]));
    for call in list(&message["tool_calls"]) {
        let function = &call["function"];
        parts.push(json!({"call": {"id": call["id"], "name": function["name"], "arguments": function["arguments"]}}));
    }
    json!({"role": message["role"], "parts": parts})
}

fn item(item: &Value) -> Value {
    match item["type"].as_str().unwrap_or("message") {
        "message" => json!({"role": item["role"], "parts": content(&item["content"])}),
        "function_call" => {
            json!({"item": {"call": {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}}})
        }
        "function_call_output" => {
            json!({"item": {"result": {"id": item["call_id"], "text": texts(&item["output"])}}})
        }
        "reasoning" => {
            let summary: Vec<&Value> = list(&item["summary"])
                .iter()
                .map(|part| &part["text"])
                .collect();
            json!({"item": {"reasoning": {"id": item["id"], "summary": summary, "encrypted": item["encrypted_content"]}}})
        }
        _ => json!({ "item": item }),
    }
}

/// All texts of a content, a line each.
fn texts(of: &Value) -> String {
    let parts = content(of);
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n")
}

fn message(message: &Value) -> Value {
    let parts: Vec<Value> = match &message["content"] {
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        other => content(other),
    };
    json!({"role": message["role"], "parts": parts})
}

fn block(block: &Value) -> Value {
    let source = &block["source"];
    match block["type"].as_str().unwrap() {
        "text" => json!({"text": block["text"]}),
        "thinking" => match block["signature"].as_str().filter(|it| !it.is_empty()) {
            Some(signature) => json!({"thinking": block["thinking"], "signature": signature}),
            None => json!({"thinking": block["thinking"]}),
        },
        "redacted_thinking" => json!({"redacted": block["data"]}),
        "image" if source["type"] == "url" => json!({"image": source["url"]}),
        "image" => json!({"image": {"media_type": source["media_type"], "data": source["data"]}}),
        "document" => {
            json!({"document": {"title": block["title"], "media_type": source["media_type"], "data": source["data"]}})
        }
        "tool_use" => {
            json!({"call": {"id": block["id"], "name": block["name"], "arguments": block["input"]}})
        }
        "tool_result" => {
            json!({"result": {"id": block["tool_use_id"], "text": texts(&block["content"])}})
        }
        _ => block.clone(),
    }
}
