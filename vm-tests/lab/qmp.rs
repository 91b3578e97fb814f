//! QEMU's control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// One connection; a thread reads it, so that events are kept until they are asked for.
pub struct Qmp {
    stream: UnixStream,
    answers: Receiver<Value>,
    events: Arc<Mutex<Vec<Value>>>,
    reader: thread::JoinHandle<()>,
}

impl Qmp {
    /// `None` as long as nobody listens.
    pub fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let (sender, answers) = channel();
        let (lines, kept) = (
            BufReader::new(stream.try_clone().unwrap()),
            Arc::clone(&events),
        );
        let reader = thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                if value.get("event").is_some() {
                    kept.lock().unwrap().push(value);
                } else if value.get("QMP").is_none() && sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut qmp = Self {
            stream,
            answers,
            events,
            reader,
        };
        qmp.command("qmp_capabilities", &json!({}));
        Some(qmp)
    }

    /// Its answer; a panic if it refuses.
    pub fn command(&mut self, name: &str, arguments: &Value) -> Value {
        let line = format!("{}\n", json!({"execute": name, "arguments": arguments}));
        // A machine that has just ended answers nobody.
        let _ = self.stream.write_all(line.as_bytes());
        let answer = self.answers.recv_timeout(Duration::from_secs(30));
        let answer = answer.unwrap_or_else(|e| json!({"error": e.to_string()}));
        assert!(
            answer.get("return").is_some() || name == "qmp_capabilities",
            "{name}: {answer}"
        );
        answer
    }

    /// Why the machine stopped, when it has: `guest-reset`, `guest-shutdown`, `guest-panic`.
    pub fn reason(self) -> Option<String> {
        // The process is gone, so the socket comes to its end.
        let _ = self.reader.join();
        let events = self.events.lock().unwrap();
        let stop = events.iter().find(|event| event["event"] == "SHUTDOWN")?;
        stop["data"]["reason"].as_str().map(str::to_owned)
    }
}
