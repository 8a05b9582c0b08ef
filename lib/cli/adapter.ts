import type { Command } from 'commander'
import { relativeError } from '../core/difference.js'
import { Adapter } from '../dora/model/adapter.js'
import { trainingOf } from '../dora/model/peft-folder.js'
import { type PeftAdapter, type PeftModule, readPeftAdapter } from '../dora/peft/adapter-folder.js'
import { type ScaledModule, updateDistance } from '../dora/peft/update-distance.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { readOnnx } from '../io/onnx/read.js'
import type { Tensor } from '../memory/tensor.js'
import { withExamples } from './command.js'
import { formatBytes, print, printJson, printPairs } from './output.js'
import { printTable } from './table.js'

/** `dgx-spark adapter`: what adapter folders hold. */
export function addAdapter(adapter: Command): void {
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
      if (flags.json) printJson(fitted ? { ...summary, shareOfBase: fitted.shareOfBase } : summary)
      else printSummary(summary)
      if (fitted && !flags.json) print(String(fitted))
    })
  withExamples(info, 'dgx-spark adapter info adapter', 'dgx-spark adapter info adapter --model base.onnx')
  const diff = adapter
    .command('diff')
    .description(
      'print how far apart the updates of two adapters are, by layer; exits with 1 when they differ',
    )
    .argument('<a>', 'adapter folder')
    .argument('<b>', 'adapter folder')
    .option('--json', 'print one JSON document')
    .action(async (a: string, b: string, flags: { json?: boolean }) => {
      const rows = differences(await readPeftAdapter(a), await readPeftAdapter(b))
      if (flags.json) printJson(rows)
      else {
        printTable(
          ['module', 'rank, alpha', 'B·A', 'magnitude', 'replaced'],
          rows.map(({ name, settings, update, magnitude, replaced }) =>
            [name, settings, update, magnitude, replaced].map(show),
          ),
          [2, 3, 4],
        )
        print('B·A with its scale, magnitude, and a bias or weight that is replaced whole: ‖b − a‖ / ‖a‖')
        print(`differences up to ${rounding} are rounding`)
      }
      if (!rows.every(isSame)) process.exitCode = 1
    })
  withExamples(diff, 'dgx-spark adapter diff adapter other-adapter')
}

const tensorsOf = ({ a, b, magnitude, bias }: PeftModule): Tensor[] =>
  [a, b, magnitude, bias].filter(tensor => tensor !== undefined)

function describe(peft: PeftAdapter) {
  const { config, modules, extra } = peft
  const sizes = (tensors: readonly Tensor[]) => ({
    parameters: tensors.reduce((sum, { size }) => sum + size, 0),
    bytes: tensors.reduce((sum, { data }) => sum + data.byteLength, 0),
  })
  const rows = [...modules].map(([name, module]) => {
    const { kind, rank, alpha } = module
    return { name, kind, rank, alpha, ...sizes(tensorsOf(module)) }
  })
  const replaced = [...extra].map(([name, tensor]) => ({ name, ...sizes([tensor]) }))
  const sum = (key: 'parameters' | 'bytes'): number =>
    [...rows, ...replaced].reduce((total, row) => total + row[key], 0)
  const { raw, loraDropout, useDora, useRslora, bias, modulesToSave } = config
  return {
    kind: useDora ? 'DoRA' : 'LoRA',
    rslora: useRslora,
    parameters: sum('parameters'),
    bytes: sum('bytes'),
    dropout: loraDropout,
    bias,
    modulesToSave,
    baseModel: textOf(raw.base_model_name_or_path),
    task: textOf(raw.task_type),
    peftVersion: textOf(raw.peft_version),
    training: trainingOf(peft) ?? null,
    modules: rows,
    replaced,
    extra: [...extra.keys()],
  }
}

const textOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null)

function printSummary(summary: ReturnType<typeof describe>): void {
  const { kind, rslora, parameters, bytes, dropout, bias, modules, replaced, modulesToSave } = summary
  printPairs([
    ['kind', `${kind}, scale alpha / ${rslora ? '√rank' : 'rank'}`],
    ['parameters', `${parameters.toLocaleString('en')}, ${formatBytes(bytes)}`],
    ['dropout', String(dropout)],
    ['biases', bias],
    ['modules to save', modulesToSave.join(', ') || 'none'],
    ['base model', summary.baseModel ?? 'not named'],
    ['task', summary.task ?? 'not named'],
    ['PEFT version', summary.peftVersion ?? 'not named'],
  ])
  const count = (value: number): string => value.toLocaleString('en')
  printTable(
    ['module', 'kind', 'rank', 'alpha', 'parameters'],
    [
      ...modules.map(row => [row.name, row.kind, String(row.rank), String(row.alpha), count(row.parameters)]),
      ...replaced.map(row => [row.name, 'replaced', '', '', count(row.parameters)]),
    ],
    [2, 3, 4],
  )
  if (summary.training === null) return
  print('trained with')
  const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
  printPairs(Object.entries(summary.training).map(([name, value]) => [name, text(value)]))
}

/** A distance; null where one of the two has no such tensor, or another shape. */
type Distance = number | null

interface Difference {
  name: string
  settings: string
  a: Distance
  b: Distance
  /** Of the updates scale · B·A. */
  update: Distance
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
      update: one && two ? updateChange(scaled(one, first), scaled(two, second)) : null,
      magnitude: distance(one?.magnitude, two?.magnitude),
      replaced: distance(one?.bias, two?.bias),
    }
  })
  const rest = [...others].map(name => {
    const replaced = distance(first.extra.get(name), second.extra.get(name))
    return { name, settings: 'equal', a: 0, b: 0, update: 0, magnitude: 0, replaced }
  })
  return [...layers, ...rest]
}

function distance(one: Tensor | undefined, two: Tensor | undefined): Distance {
  if (!one && !two) return 0
  if (!one || !two || one.shape.join() !== two.shape.join()) return null
  return relativeError(two.toFloat32(), one.toFloat32())
}

const scaled = (module: PeftModule, { config }: PeftAdapter): ScaledModule => ({
  a: module.a,
  b: module.b,
  scale: module.alpha / (config.useRslora ? Math.sqrt(module.rank) : module.rank),
})

function updateChange(one: ScaledModule, two: ScaledModule): Distance {
  const distance = updateDistance(one, two)
  if (!distance) return null
  return distance.difference === 0 ? 0 : distance.difference / distance.norm
}

/** Relative differences of f32 factors whose products mean the same. */
const rounding = 1e-6

const isSame = ({ update, magnitude, replaced }: Difference): boolean =>
  [update, magnitude, replaced].every(part => part !== null && part <= rounding)

const show = (value: string | Distance): string =>
  typeof value === 'string' ? value : value === null ? '-' : value.toExponential(2)
