# A plugin for sos (https://github.com/sosreport/sos): what mco-rescue knows of a node.
#
# It goes into the directory sos/report/plugins of sos. `mco-rescue` leaves out the content of
# every file that a config brings, and the state directory is not copied: it holds configs with
# secrets. Everything here only reads.

from sos.report.plugins import IndependentPlugin, Plugin


class McoRescue(Plugin, IndependentPlugin):

    short_desc = 'mco-rescue: state of a node and its rendered MachineConfig'
    plugin_name = 'mco_rescue'
    profiles = ('openshift', 'system')
    packages = ('mco-rescue',)
    files = ('/usr/local/bin/mco-rescue', '/usr/bin/mco-rescue')
    commands = ('mco-rescue',)

    def setup(self):
        self.add_cmd_output([
            'mco-rescue --version',
            'mco-rescue status',
            'mco-rescue status --output json',
            'mco-rescue doctor --output json',
            'mco-rescue history --output json',
            'mco-rescue diff --output json',
            'mco-rescue cache list --output json',
        ])
        # Names and times alone.
        self.add_cmd_output('ls -lZR /var/lib/mco-rescue')
        self.add_journal(identifier='mco-rescue')
        for unit in ('recover', 'complete', 'trial', 'record', 'fetch'):
            self.add_journal(units='mco-rescue-%s.service' % unit)

# vim: set et ts=4 sw=4 :
