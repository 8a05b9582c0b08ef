// service.ts: `dgx-spark service`: a systemd unit that keeps a node running.
import type { Command } from 'commander'
import { installService, removeService, type ServiceScope, serviceUnit } from '../../cluster/service.js'
import { UsageError, withExamples } from '../command.js'
import { print, printJson } from '../output.js'

interface Flags {
  system?: boolean
  user?: boolean
  dryRun?: boolean
  json?: boolean
}

/** `dgx-spark service`: install and remove the systemd unit of a node. */
export function addService(service: Command): void {
  withExamples(service, 'dgx-spark service install --dry-run', 'dgx-spark service remove')
  const install = withScope(
    service.command('install').description('write a systemd unit that runs `dgx-spark up` with few rights'),
  )
    .option('--dry-run', 'print the unit, and write nothing')
    .option('--json', 'print one JSON document')
    .action(async (flags: Flags) => {
      const { dryRun, json } = flags
      const unit = dryRun ? serviceUnit(scopeOf(flags)) : await installService(scopeOf(flags))
      if (json) printJson({ ...unit, written: !dryRun })
      else if (dryRun) for (const line of unit.text.trimEnd().split('\n')) print(line)
      else printNext(`wrote ${unit.file}`, unit.next)
    })
  withExamples(
    install,
    'dgx-spark service install',
    'dgx-spark service install --user',
    'dgx-spark service install --system --dry-run',
  )
  const remove = withScope(service.command('remove').description('remove the unit'))
    .option('--json', 'print one JSON document')
    .action(async (flags: Flags) => {
      const result = await removeService(scopeOf(flags))
      if (flags.json) printJson(result)
      else if (result.removed) printNext(`removed ${result.file}`, result.next)
      else print(`there is no ${result.file}`)
    })
  withExamples(remove, 'dgx-spark service remove', 'dgx-spark service remove --user')
}

const withScope = (command: Command): Command =>
  command
    .option('--system', 'a unit of the system, started with the machine (default for root)')
    .option('--user', 'a unit of this user, started at login (default for others)')

function scopeOf({ system, user }: Flags): ServiceScope {
  if (system && user) throw new UsageError('give --system or --user')
  if (system || user) return system ? 'system' : 'user'
  return process.getuid?.() === 0 ? 'system' : 'user'
}

function printNext(what: string, next: readonly string[]): void {
  print(what)
  print('run next:')
  for (const command of next) print(`  ${command}`)
}
