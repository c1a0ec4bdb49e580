//! MIG on a simulated host: GPUs in that mode, and their devices, as NVML, procfs and `/dev` tell of them.

use std::fs;
use std::path::PathBuf;

use super::driver;
use super::host::{Gpu, Host, make_dir, make_node};

/// The capabilities by which MIG devices are made and watched.
pub const CONTROL: [(&str, u32); 2] = [("config", 1), ("monitor", 2)];

/// GPU instances of a GPU, and compute instances of each, for which the driver keeps minors.
const INSTANCES: (u32, u32) = (15, 8);

/// A MIG device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// `1g.5gb`
    pub profile: &'static str,
    /// The GPU instance.
    pub gi: u32,
    /// The compute instance.
    pub ci: u32,
}

/// A MIG device on a GPU instance of its own.
pub const fn whole(profile: &'static str, gi: u32) -> Device {
    Device { profile, gi, ci: 0 }
}

impl Device {
    /// As the driver makes it: from what and where it is, so that one that is made again has the same.
    pub fn uuid(&self, gpu: &Gpu) -> String {
        let (name, tail) =
            (self.profile.bytes().fold(0_u32, |sum, b| sum * 3 + u32::from(b)), &gpu.uuid[28..]);
        format!("MIG-{:04x}{:04x}-{:04x}-5222-2222-{tail}", self.gi, self.ci, name & 0xffff)
    }

    /// In bytes: a little less than its name says.
    pub fn memory(&self) -> u64 {
        let sizes = self.profile.split(['.', '+']);
        let gb = sizes.filter_map(|part| part.strip_suffix("gb")).next().expect("a size in the name");
        (gb.parse::<u64>().expect("a number") << 30) - (256 << 20)
    }

    /// Its nodes: path, and number.
    pub fn nodes(&self, host: &Host, gpu: &Gpu) -> [(String, (u32, u32)); 2] {
        self.minors(gpu).map(|minor| (node(minor), (host.caps_major(), minor)))
    }

    /// The minors of its GPU instance and of its compute instance.
    fn minors(&self, gpu: &Gpu) -> [u32; 2] {
        let first = first_minor(gpu.minor) + self.gi * (1 + INSTANCES.1);
        [first, first + 1 + self.ci]
    }
}

/// `/dev/nvidia-caps/nvidia-cap<minor>`
pub fn node(minor: u32) -> String {
    format!("/dev/nvidia-caps/nvidia-cap{minor}")
}

fn first_minor(gpu: u32) -> u32 {
    3 + gpu * INSTANCES.0 * (1 + INSTANCES.1)
}

/// The minors of all instances that could be on a GPU.
pub fn possible_minors(gpu: &Gpu) -> std::ops::Range<u32> {
    first_minor(gpu.minor)..first_minor(gpu.minor + 1)
}

/// `proc/driver/nvidia-caps/mig-minors`: all that could be, on any GPU.
pub fn minors_file() -> String {
    let mut text: String = CONTROL.iter().map(|(name, minor)| format!("{name} {minor}\n")).collect();
    let mut lines = Vec::new();
    for (gpu, gi) in (0..32).flat_map(|gpu| (0..INSTANCES.0).map(move |gi| (gpu, gi))) {
        lines.push(format!("gpu{gpu}/gi{gi}/access"));
        lines.extend((0..INSTANCES.1).map(|ci| format!("gpu{gpu}/gi{gi}/ci{ci}/access")));
    }
    text.extend((3..).zip(lines).map(|(minor, name)| format!("{name} {minor}\n")));
    text
}

impl Host {
    /// Puts a GPU into MIG mode, with these devices, or out of it. The host must have been built with NVML. Nodes of
    /// devices that are gone stay, as those in a real `/dev` do.
    pub fn set_mig(&self, gpu: &Gpu, devices: Option<&[Device]>) {
        let library = self.driver_root().join(driver::LIBRARIES);
        let file = library.join(fake_nvml::CONFIG);
        let text = fs::read(&file).expect("a host with NVML");
        let mut nvml: fake_nvml::Host = serde_json::from_slice(&text).expect("NVML's file");
        let entry = nvml.gpus.iter_mut().find(|one| one.uuid == gpu.uuid).expect("a GPU of the host");
        entry.mig = devices.map_or(fake_nvml::Mig::Disabled, |devices| {
            let listed = devices.iter().map(|device| Some(listed(gpu, device)));
            // NVML's list has places without a device.
            fake_nvml::Mig::Enabled(std::iter::once(None).chain(listed).chain([None]).collect())
        });
        nvml.write(&library).expect("NVML's file");
        self.write_capabilities(gpu, devices.unwrap_or_default());
    }

    fn write_capabilities(&self, gpu: &Gpu, devices: &[Device]) {
        let all = self.driver_root().join("proc/driver/nvidia/capabilities");
        let mig = all.join(format!("gpu{}/mig", gpu.minor));
        let _ = fs::remove_dir_all(&mig);
        make_dir(&mig);
        make_dir(&all.join("mig"));
        make_dir(&self.driver_root().join("dev/nvidia-caps"));
        for (name, minor) in CONTROL {
            self.write_capability(all.join("mig").join(name), minor);
        }
        for device in devices {
            let gi = mig.join(format!("gi{}", device.gi));
            let ci = gi.join(format!("ci{}", device.ci));
            make_dir(&ci);
            for (dir, minor) in [gi, ci].into_iter().zip(device.minors(gpu)) {
                self.write_capability(dir.join("access"), minor);
            }
        }
    }

    fn write_capability(&self, file: PathBuf, minor: u32) {
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(file, text).expect("a capability");
        let path = self.driver_root().join(&node(minor)[1..]);
        if !path.exists() {
            make_node(&path, self.caps_major(), minor);
        }
    }
}

fn listed(gpu: &Gpu, device: &Device) -> fake_nvml::MigDevice {
    fake_nvml::MigDevice {
        uuid: device.uuid(gpu),
        name: format!("{} MIG {}", gpu.name, device.profile),
        gpu_instance: device.gi,
        compute_instance: device.ci,
        memory: Some(device.memory()),
        processes: Vec::new(),
    }
}
