// invite.ts: `dgx-spark invite`: a code with which another machine joins the cluster.
import type { Command } from 'commander'
import { ClusterAuthority } from '../../cluster/trust/authority.js'
import { Invitations } from '../../cluster/trust/invitations.js'
import { withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { print, printJson, styled } from '../output.js'

interface Flags {
  minutes?: number
  home?: string
  json?: boolean
}

/** `dgx-spark invite`. */
export function addInvite(command: Command): void {
  command
    .option('--minutes <n>', 'how long the code may be used, up to 1440 (default: 15)', integerFrom(1, 1440))
    .option('--home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)', pathFrom)
    .option('--json', 'print one JSON document')
    .action(invite)
  withExamples(command, 'dgx-spark invite', 'dgx-spark invite --minutes 60')
}

async function invite({ minutes, home, json }: Flags): Promise<void> {
  const authority = await ClusterAuthority.open(home)
  const { code, until } = await new Invitations(authority.folder).create(authority.fingerprint, minutes)
  const { clusterId, clusterName, fingerprint } = authority
  const command = `dgx-spark up --join ${code}`
  if (json) {
    printJson({ code, until: until.toISOString(), clusterId, clusterName, fingerprint, command })
    return
  }
  print(styled('bold', code))
  print(
    `One machine may join ${clusterName} with it until ${until.toISOString()}, while this node is up. There, run:`,
  )
  print(`  ${command}`)
}
