// links.ts: `dgx-spark links`: the links of the node that runs on this machine.
import type { Command } from 'commander'
import { linkColumns, linkRow } from '../../cluster/links/link-rows.js'
import { defaultStatePort } from '../../cluster/node/node-options.js'
import { withExamples } from '../command.js'
import { integerFrom } from '../numbers.js'
import { print, printJson } from '../output.js'
import { printTable } from '../table.js'
import { stateAt } from './state-at.js'

interface Flags {
  statePort: number
  json?: boolean
}

/** `dgx-spark links`. */
export function addLinks(command: Command): void {
  command
    .option(
      '--state-port <n>',
      'port that dgx-spark up tells its state at',
      integerFrom(1, 65535),
      defaultStatePort,
    )
    .option('--json', 'print one JSON document')
    .action(run)
  withExamples(command, 'dgx-spark links', 'dgx-spark links --json')
}

async function run({ statePort, json }: Flags): Promise<void> {
  const { links, nodes } = await stateAt(statePort)
  if (json) printJson(links)
  else if (links.length === 0) print('no other node is linked to this one')
  else {
    const names = new Map(nodes.map(({ id, name }) => [id, name]))
    printTable(
      [...linkColumns],
      links.map(link => linkRow(link, names.get(link.nodeId))),
    )
  }
}
