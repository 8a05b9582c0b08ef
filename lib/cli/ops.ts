import type { Command } from 'commander'
import { contribUpgrades } from '../graph/rewrites/canonicalise/contrib.js'
import { kernelNames } from '../kernels/js/js.js'
import { hostOperators } from '../model/host/index.js'
import { loadAddon } from '../native.js'
import { loweredOperators } from '../plan/lower/index.js'
import { withExamples } from './command.js'
import { print, printJson } from './output.js'
import { printTable } from './table.js'

/** `dgx-spark ops`: operators that models may use, and the kernels they are made of on each backend. */
export function addOps(command: Command): void {
  command.option('--json', 'print one JSON document').action((options: { json?: boolean }) => {
    const { addon } = loadAddon()
    const kernels = kernelNames.map(op => ({
      op,
      js: true,
      cpu: addon?.supports('cpu', op) ?? false,
      cuda: addon?.supports('cuda', op) ?? false,
    }))
    const operators = [...loweredOperators()].flatMap(([domain, names]) =>
      names.map(op => ({ domain, op, runs: 'kernels' })),
    )
    const host = hostOperators
      .filter(op => !operators.some(known => known.domain === '' && known.op === op))
      .map(op => ({ domain: '', op, runs: 'host' }))
    const rewritten = Object.keys(contribUpgrades).map(op => ({
      domain: 'com.microsoft',
      op,
      runs: 'rewritten',
    }))
    const all = [...operators, ...host, ...rewritten].sort((a, b) =>
      a.domain + a.op < b.domain + b.op ? -1 : 1,
    )
    if (options.json) printJson({ operators: all, kernels })
    else report(all, kernels)
  })
  withExamples(command, 'dgx-spark ops', 'dgx-spark ops --json')
}

/** Where an operator that has no kernel calls of its own runs. */
const locations: Readonly<Record<string, string>> = {
  host: 'on the host, between plans',
  rewritten: 'as operators of ONNX',
}

function report(
  operators: readonly { domain: string; op: string; runs: string }[],
  kernels: readonly { op: string; js: boolean; cpu: boolean; cuda: boolean }[],
): void {
  printTable(
    ['operator', 'domain', 'runs'],
    operators.map(({ domain, op, runs }) => [op, domain || 'ONNX', locations[runs] ?? 'in plans']),
  )
  const mark = (there: boolean): string => (there ? 'yes' : 'no')
  printTable(
    ['kernel', 'js', 'cpu', 'cuda'],
    kernels.map(({ op, js, cpu, cuda }) => [op, mark(js), mark(cpu), mark(cuda)]),
  )
  const standard = operators.filter(({ domain }) => domain === '').length
  const count = (backend: 'js' | 'cpu' | 'cuda'): number => kernels.filter(kernel => kernel[backend]).length
  print(`${standard} operators of ONNX, ${operators.length - standard} of other domains`)
  print(`kernels: ${count('js')} js, ${count('cpu')} cpu, ${count('cuda')} cuda`)
}
