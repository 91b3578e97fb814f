//! Butane's variant `openshift`, translated to a MachineConfig (docs/controllers.md: Butane).
