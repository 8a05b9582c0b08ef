import type { Command } from 'commander'
import { type CheckItem, checkSystem } from '../diagnostics/check.js'
import { withExamples } from './command.js'
import { print, printJson, styled } from './output.js'

const marks = { ok: ['green', 'ok'], note: ['yellow', 'note'], problem: ['red', 'PROBLEM'] } as const

/** `dgx-spark check`: what was looked for, what was found, the next command to run. */
export function addCheck(command: Command): void {
  command.option('--json', 'print one JSON document').action(async (options: { json?: boolean }) => {
    const items = await checkSystem()
    if (options.json) printJson(items)
    else for (const item of items) report(item)
    if (items.some(item => item.status === 'problem')) process.exitCode = 1
  })
  withExamples(command, 'dgx-spark check', 'dgx-spark check --json')
}

function report({ name, status, found, next }: CheckItem): void {
  const [color, mark] = marks[status]
  print(styled(color, mark.padEnd(8)), ' ', styled('bold', name.padEnd(18)), ' ', found)
  if (next) print(' '.repeat(28), styled('cyan', `> ${next}`))
}
