//! Quadlets: a file for each, or a link for an instance of a template.

use serde_json::Value;

use crate::base::reason::Reason;
use crate::config::butane::convert::Translator;
use crate::config::butane::files::Listed;
use crate::config::butane::out::Out;
use crate::config::butane::report::Path;

impl Translator<'_> {
    /// Adds a file for each quadlet, or a link for an instance of a template.
    pub(in crate::config::butane) fn add_quadlets(&mut self, config: &mut Out, input: &Value) {
        let quadlets = input.pointer("/systemd/quadlets").and_then(Value::as_array);
        let mut listed = Listed::from_config(config);
        for (index, quadlet) in quadlets.into_iter().flatten().enumerate() {
            let at = Path::from_keys(&["systemd", "quadlets"]).with_index(index);
            if let Err((at, message)) = self.add_quadlet(config, &mut listed, quadlet, &at) {
                self.report.add_error(at, message.to_string());
            }
        }
    }

    fn add_quadlet(
        &mut self,
        config: &mut Out,
        listed: &mut Listed,
        quadlet: &Value,
        at: &Path,
    ) -> Result<(), (Path, Reason)> {
        let text = |key| {
            quadlet
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let name = text("name").unwrap_or_default();
        let users = match quadlet.get("rootful") {
            Some(Value::Bool(true)) => "",
            _ => "/users",
        };
        let path = format!("/etc/containers/systemd{users}/{name}");
        if listed.has_path(&path) {
            let message = "matching filesystem node has existing contents or different type";
            return Err((at.clone(), message.into()));
        }
        let mut node = Out::map(
            at,
            vec![("path", Out::leaf(&at.with_key("name"), path.as_str()))],
        );
        if let Some(template) = template_of(name) {
            node.set("target", Out::leaf(at, template));
            listed.put_node(config, "links", &path, node);
            return Ok(());
        }
        let (from, bytes) = match (text("contents"), text("contents_local")) {
            (Some(contents), _) => (at.with_key("contents"), contents.as_bytes().to_vec()),
            (None, Some(local)) => {
                let from = at.with_key("contents_local");
                let bytes = self
                    .read_local(local)
                    .map_err(|message| (from.clone(), message))?;
                (from, bytes)
            }
            (None, None) => (at.clone(), Vec::new()),
        };
        let mut contents = Out::map(&from, Vec::new());
        self.set_contents(&mut contents, &bytes, &from);
        node.set("contents", contents);
        node.set("mode", Out::leaf(at, 0o644));
        listed.put_node(config, "files", &path, node);
        Ok(())
    }
}

/// Returns the template of an instance: that of `web@1.container` is `web@.container`.
pub(in crate::config::butane) fn template_of(name: &str) -> Option<String> {
    let (base, rest) = name.split_once('@')?;
    let dot = rest.find('.').filter(|dot| *dot > 0)?;
    Some(format!("{base}@{}", rest.get(dot..)?))
}
