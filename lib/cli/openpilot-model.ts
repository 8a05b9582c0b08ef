// openpilot-model.ts: `dgx-spark openpilot-model`: a driving model of openpilot with random weights.
import { Argument, type Command } from 'commander'
import { lockFile } from '../io/lock.js'
import { writeOnnx } from '../io/onnx/save.js'
import { describeType } from '../model/feeds.js'
import {
  buildOpenpilotModel,
  type OpenpilotModelName,
  openpilotModelNames,
} from '../openpilot/architectures/build.js'
import { withExamples } from './command.js'
import { formatCount } from './counts.js'
import { writtenBytes } from './files.js'
import { integerFrom, pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs } from './output.js'

interface Flags {
  output: string
  seed: number
  json?: boolean
}

/** `dgx-spark openpilot-model`: writes an architecture of openpilot with random weights. */
export function addOpenpilotModel(command: Command): void {
  command
    .addArgument(new Argument('<name>', 'which model').choices(openpilotModelNames))
    .requiredOption('-o, --output <file>', 'ONNX file to write', pathFrom)
    .option('--seed <number>', 'seed of the weights', integerFrom(0, 2 ** 32 - 1), 1)
    .option('--json', 'print one JSON document')
    .action(write)
  withExamples(
    command,
    'dgx-spark openpilot-model driving_policy --output policy.onnx',
    'dgx-spark openpilot-model supercombo-0.8.10 --output supercombo.onnx --seed 7',
  )
}

async function write(name: OpenpilotModelName, { output, seed, json }: Flags): Promise<void> {
  const graph = await buildOpenpilotModel(name, { seed })
  using _lock = await lockFile(output)
  await writeOnnx(graph, output)
  const parameters = [...graph.initializers.values()].reduce((sum, { count }) => sum + count, 0)
  const fileBytes = await writtenBytes([output])
  const approximate = graph.metadata.get('approximate') ?? null
  if (json) {
    printJson({ output, name, seed, nodes: graph.nodes.length, parameters, fileBytes, approximate })
    return
  }
  printPairs([
    ...graph.inputs.map(info => ['input', `${info.name}: ${describeType(info.type)}`] as const),
    ...graph.outputs.map(info => ['output', `${info.name}: ${describeType(info.type)}`] as const),
    ['nodes', formatCount(graph.nodes.length)],
    ['parameters', formatCount(parameters)],
    ['file', formatBytes(fileBytes)],
    ['structure', approximate ?? 'as in the original'],
  ])
  print(`wrote ${output}`)
}
