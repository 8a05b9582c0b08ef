import type { Command } from 'commander'
import { relativeError } from '../core/difference.js'
import { Adapter } from '../dora/model/adapter.js'
import { type PeftAdapter, type PeftModule, readPeftAdapter } from '../dora/peft/adapter-folder.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { readOnnx } from '../io/onnx/read.js'
import type { Tensor } from '../memory/tensor.js'
import { withExamples } from './command.js'
import { formatBytes, print, printJson, printPairs, printTable } from './output.js'

/** `dgx-spark adapter`: what adapter folders hold. */
export function addAdapter(program: Command): void {
  const adapter = program.command('adapter').description("look into adapter folders in PEFT's format")
  withExamples(adapter, 'dgx-spark adapter info adapter', 'dgx-spark adapter diff adapter other-adapter')
  const info = adapter
    .command('info')
    .description('print the layers of an adapter, their ranks and sizes')
    .argument('<folder>', 'adapter folder')
    .option('--model <file>', 'ONNX model to check it against')
    .option('--json', 'print one JSON document')
    .action(async (folder: string, flags: { model?: string; json?: boolean }) => {
      const peft = await readPeftAdapter(folder)
      const fitted = flags.model && (await Adapter.load(canonicalise(await readOnnx(flags.model)), folder))
      const summary = describe(peft)
      if (flags.json) {
        printJson(fitted ? { ...summary, shareOfBase: fitted.shareOfBase } : summary)
        return
      }
      printPairs([
        ['kind', `${summary.kind}, scale alpha / ${peft.config.useRslora ? '√rank' : 'rank'}`],
        ['parameters', `${summary.parameters.toLocaleString('en')}, ${formatBytes(summary.bytes)}`],
      ])
      printTable(
        ['module', 'kind', 'rank', 'alpha', 'parameters'],
        summary.modules.map(({ name, kind, rank, alpha, parameters }) => [
          name,
          kind,
          String(rank),
          String(alpha),
          parameters.toLocaleString('en'),
        ]),
        [2, 3, 4],
      )
      if (fitted) print(String(fitted))
    })
  withExamples(info, 'dgx-spark adapter info adapter', 'dgx-spark adapter info adapter --model base.onnx')
  const diff = adapter
    .command('diff')
    .description('print how far apart two adapters are, layer by layer; exits with 1 when they differ')
    .argument('<a>', 'adapter folder')
    .argument('<b>', 'adapter folder')
    .option('--json', 'print one JSON document')
    .action(async (a: string, b: string, flags: { json?: boolean }) => {
      const rows = differences(await readPeftAdapter(a), await readPeftAdapter(b))
      if (flags.json) printJson(rows)
      else {
        printTable(
          ['module', 'rank, alpha', 'A', 'B', 'magnitude', 'replaced'],
          rows.map(({ name, settings, ...parts }) => [name, settings, ...Object.values(parts)].map(show)),
          [2, 3, 4, 5],
        )
        print('A, B, magnitude, and a bias or weight that is replaced whole: ‖b − a‖ / ‖a‖')
      }
      const same = rows.every(({ name, settings, ...parts }) => {
        return settings === 'equal' && Object.values(parts).every(part => part === 0)
      })
      if (!same) process.exitCode = 1
    })
  withExamples(diff, 'dgx-spark adapter diff adapter other-adapter')
}

const tensorsOf = ({ a, b, magnitude, bias }: PeftModule): Tensor[] =>
  [a, b, magnitude, bias].filter(tensor => tensor !== undefined)

function describe({ config, modules, extra }: PeftAdapter) {
  const rows = [...modules].map(([name, module]) => {
    const { kind, rank, alpha } = module
    const parameters = tensorsOf(module).reduce((sum, { size }) => sum + size, 0)
    const bytes = tensorsOf(module).reduce((sum, { data }) => sum + data.byteLength, 0)
    return { name, kind, rank, alpha, parameters, bytes }
  })
  const sum = (key: 'parameters' | 'bytes'): number => rows.reduce((total, row) => total + row[key], 0)
  const kind = config.useDora ? 'DoRA' : 'LoRA'
  return { kind, parameters: sum('parameters'), bytes: sum('bytes'), modules: rows, extra: [...extra.keys()] }
}

/** A distance; null where one of the two has no such tensor, or another shape. */
type Distance = number | null

interface Difference {
  name: string
  settings: string
  a: Distance
  b: Distance
  magnitude: Distance
  replaced: Distance
}

/** Layer by layer; a tensor of the model that has no adapter and is replaced whole is a line of its own. */
function differences(first: PeftAdapter, second: PeftAdapter): Difference[] {
  const names = new Set([...first.modules.keys(), ...second.modules.keys()])
  const others = new Set([...first.extra.keys(), ...second.extra.keys()])
  const layers = [...names].map(name => {
    const [one, two] = [first.modules.get(name), second.modules.get(name)]
    const settings = (module: PeftModule | undefined): string =>
      module ? `${module.rank}, ${module.alpha}` : 'none'
    const isEqual = settings(one) === settings(two) && first.config.useRslora === second.config.useRslora
    return {
      name,
      settings: isEqual ? 'equal' : `${settings(one)} / ${settings(two)}`,
      a: distance(one?.a, two?.a),
      b: distance(one?.b, two?.b),
      magnitude: distance(one?.magnitude, two?.magnitude),
      replaced: distance(one?.bias, two?.bias),
    }
  })
  const rest = [...others].map(name => {
    const replaced = distance(first.extra.get(name), second.extra.get(name))
    return { name, settings: 'equal', a: 0, b: 0, magnitude: 0, replaced }
  })
  return [...layers, ...rest]
}

function distance(one: Tensor | undefined, two: Tensor | undefined): Distance {
  if (!one && !two) return 0
  if (!one || !two || one.shape.join() !== two.shape.join()) return null
  return relativeError(two.toFloat32(), one.toFloat32())
}

const show = (value: string | Distance): string =>
  typeof value === 'string' ? value : value === null ? '-' : value.toExponential(2)
