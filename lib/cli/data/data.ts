// data.ts: `dgx-spark data`: recorded drives.
import type { Command } from 'commander'
import { withExamples } from '../command.js'
import { addDownload } from './download.js'
import { addList } from './list.js'
import { addRead } from './read.js'

/** `dgx-spark data`: lists, reads and downloads drives of openpilot and comma2k19. */
export function addData(data: Command): void {
  withExamples(
    data,
    'dgx-spark data list drives',
    'dgx-spark data read drives --signals carState.vEgo,carState.steeringAngleDeg',
  )
  addList(data.command('list'))
  addRead(data.command('read'))
  addDownload(data.command('download'))
}
