//! The physical network interfaces of a machine, from `/sys` and the udev database.

use super::Seen;
use super::devices::{DeviceLevel, levels_above, text_of};
use crate::base::reason::Reason;
use crate::host::root::{EntryType, Root, RootPath};

const CLASS: &str = "/sys/class/net";
/// The kernel's type number of an Ethernet interface.
const ETHERNET: &str = "1";

/// A physical Ethernet interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Its permanent MAC address, if known. The current one may be that of a bond.
    pub mac: Option<Mac>,
    /// Driver, according to udev.
    pub driver: Option<String>,
    /// Path of the device, from udev's `ID_PATH`.
    pub path: Option<String>,
    /// It is a virtual function of another device.
    pub is_function: bool,
    /// It is up, or a port of another interface.
    pub is_used: bool,
    /// Its device, and the devices above it up to the root of the bus that have a bound driver.
    pub levels: Vec<DeviceLevel>,
}

/// A permanent address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mac {
    /// The address, in upper case.
    pub address: String,
    /// The file that has it.
    pub place: String,
}

/// Reads all physical Ethernet interfaces.
///
/// # Errors
/// The reason why they cannot be read.
pub fn read_interfaces(root: &Root) -> Seen<Vec<Interface>> {
    let names = root.list_types(&RootPath::fixed("sys/class/net"));
    let names = names.map_err(Reason::from_error)?;
    if names.is_empty() {
        return Err(format!("{CLASS} is missing below this root").into());
    }
    // `bonding_masters` is a file.
    let all = names
        .into_iter()
        .filter(|(_, kind)| *kind != EntryType::File);
    let all = all.map(|(name, _)| read_one(root, name));
    all.filter_map(Seen::transpose).collect()
}

fn read_one(root: &Root, name: String) -> Seen<Option<Interface>> {
    let at =
        |file: &str| RootPath::parse(&format!("{CLASS}/{name}/{file}")).map_err(Reason::from_error);
    let text = |file: &str| text_of(root, &at(file)?);
    let there = |file: &str| root.exists(&at(file)?).map_err(Reason::from_error);
    let is_ethernet = there("device")? && text("type")?.as_deref() == Some(ETHERNET);
    if !is_ethernet || there("wireless")? || there("phy80211")? {
        return Ok(None);
    }
    let udev = Udev::read(root, text("ifindex")?)?;
    let levels = levels_above(root, &at("device")?)?;
    let of_device = root.read_link(&at("device/driver")?);
    let of_device = of_device.map_err(Reason::from_error)?;
    let of_device = of_device.and_then(|link| Some(link.rsplit_once('/')?.1.to_owned()));
    let is_used = there("master")? || text("operstate")?.is_some_and(|state| state == "up");
    Ok(Some(Interface {
        mac: permanent_mac(&name, text, &udev)?,
        driver: udev.get("ID_NET_DRIVER").map(str::to_owned).or(of_device),
        path: udev.get("ID_PATH").map(str::to_owned),
        is_function: there("device/physfn")?,
        is_used,
        levels,
        name,
    }))
}

/// Returns the permanent MAC address. `address` in `/sys` differs for a port of a bond, or if a program has set it.
fn permanent_mac(
    name: &str,
    text: impl Fn(&str) -> Seen<Option<String>>,
    udev: &Udev,
) -> Seen<Option<Mac>> {
    let found = |address: &str, place: String| {
        let address = parse_mac(address)?;
        Some(Mac { address, place })
    };
    let of_port = "bonding_slave/perm_hwaddr";
    if let Some(address) = text(of_port)? {
        return Ok(found(&address, format!("{CLASS}/{name}/{of_port}")));
    }
    let of_udev = udev.get("ID_NET_NAME_MAC").and_then(|name| {
        let digits = name.get(name.len().checked_sub(12)?..)?;
        let pairs: Vec<&str> = (0..6)
            .filter_map(|i| digits.get(2 * i..2 * i + 2))
            .collect();
        found(&pairs.join(":"), udev.place.clone())
    });
    // The kernel reports the origin of the address: 0 is the device's own.
    let is_own = text("addr_assign_type")?.is_some_and(|kind| kind == "0");
    let own = text("address")?.filter(|_| is_own);
    Ok(of_udev.or_else(|| found(&own?, format!("{CLASS}/{name}/address"))))
}

/// Parses a MAC address and returns it in upper case; `None` if it is invalid or all zeros.
pub(super) fn parse_mac(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_uppercase().replace('-', ":");
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let valid = text.split(':').count() == 6 && text.split(':').all(is_byte);
    (valid && text != "00:00:00:00:00:00").then_some(text)
}

/// A record of udev's database.
#[derive(Debug, Default)]
struct Udev {
    place: String,
    lines: String,
}

impl Udev {
    fn read(root: &Root, index: Option<String>) -> Seen<Self> {
        let Some(place) = index.map(|index| format!("/run/udev/data/n{index}")) else {
            return Ok(Self::default());
        };
        let at = RootPath::parse(&place).map_err(Reason::from_error)?;
        let lines = text_of(root, &at)?.unwrap_or_default();
        Ok(Self { place, lines })
    }

    fn get(&self, key: &str) -> Option<&str> {
        let mut lines = self.lines.lines();
        let value = lines.find_map(|line| {
            line.strip_prefix("E:")?
                .strip_prefix(key)?
                .strip_prefix('=')
        });
        value.filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_bond_is_never_taken_for_a_permanent_one() {
        let address = |files: &[(&str, &str)], udev: &str| {
            let udev = Udev {
                place: "udev".to_owned(),
                lines: udev.to_owned(),
            };
            let text = |file: &str| {
                let found = files.iter().find(|(name, _)| *name == file);
                Ok(found.map(|(_, text)| (*text).to_owned()))
            };
            let mac = permanent_mac("x", text, &udev).unwrap();
            mac.map(|mac| mac.address)
        };
        let own = ("address", "52:54:00:aa:bb:cc");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            address(&[own, ("addr_assign_type", "0")], ""),
            some("52:54:00:AA:BB:CC")
        );
        assert_eq!(address(&[own, ("addr_assign_type", "3")], ""), None);
        assert_eq!(address(&[own], ""), None);
        assert_eq!(
            address(
                &[own, ("addr_assign_type", "3")],
                "I:1\nE:ID_NET_NAME_MAC=enx525400ddeeff\n"
            ),
            some("52:54:00:DD:EE:FF")
        );
        let port = ("bonding_slave/perm_hwaddr", "52:54:00:11:22:33");
        assert_eq!(
            address(&[own, ("addr_assign_type", "0"), port], ""),
            some("52:54:00:11:22:33")
        );
        let none = ("bonding_slave/perm_hwaddr", "00:00:00:00:00:00");
        assert_eq!(address(&[own, ("addr_assign_type", "0"), none], ""), None);
    }
}
