// program.ts: all commands.
import { Command } from 'commander'
import { packageVersion } from '../core/version.js'
import { helpStyle, withExamples, withTerm, writeUsageError } from './command.js'
import { commanderOutput, print } from './output.js'

const exitCodes = `
Exit codes:
  0    all is well
  1    a check failed, a kernel disagrees with the reference, or the command could not do its work
  2    wrong usage
  130  interrupted with Ctrl-C`

/** A command as the help of the tool lists it, and what gives it its options and its action. */
interface Entry {
  /** Behind the name: marks of options and operands. */
  readonly usage: string
  readonly description: string
  load(): Promise<(command: Command) => void>
}

const commands: Readonly<Record<string, Entry>> = {
  info: {
    usage: '[options]',
    description: 'show the machine, its GPUs and the configuration',
    load: async () => (await import('./info.js')).addInfo,
  },
  check: {
    usage: '[options]',
    description: 'look for everything a GPU needs and say what to do about what is missing',
    load: async () => (await import('./check.js')).addCheck,
  },
  verify: {
    usage: '[options]',
    description: 'run each kernel on each device: GPUs against the CPU, the CPU against plain TypeScript',
    load: async () => (await import('./verify.js')).addVerify,
  },
  monitor: {
    usage: '[options]',
    description: 'watch CPU, memory and GPUs: utilization, temperature, power, clocks, throttling, processes',
    load: async () => (await import('./monitor.js')).addMonitor,
  },
  inspect: {
    usage: '[options] <model>',
    description:
      'show inputs, operators, parameters, arithmetic, fusions, memory and adaptable layers of a model; a GGUF file; a folder',
    load: async () => (await import('./inspect.js')).addInspect,
  },
  pull: {
    usage: '[options] <model>',
    description: 'download a language model: hf:owner/name, ollama:name, or an address; list what there is',
    load: async () => (await import('./text/pull.js')).addPull,
  },
  'inspect-route': {
    usage: '[options] <source>',
    description:
      'show events, speed, steering and calibration of a drive of openpilot, or write a page of it',
    load: async () => (await import('./inspect-route.js')).addInspectRoute,
  },
  ops: {
    usage: '[options]',
    description: 'list the operators that models may use, and which backend has which kernel',
    load: async () => (await import('./ops.js')).addOps,
  },
  run: {
    usage: '[options] <model.onnx>',
    description:
      'run a model with given or random inputs; print, save or compare its outputs; measure latency',
    load: async () => (await import('./run.js')).addRun,
  },
  bench: {
    usage: '[options] [model.onnx]',
    description:
      'measure latency, throughput and energy of models beside ONNX Runtime or TensorRT; compare results',
    load: async () => (await import('./bench.js')).addBench,
  },
  'bench-llm': {
    usage: '[options] <model>',
    description: 'measure how fast a language model reads prompts and generates, beside node-llama-cpp',
    load: async () => (await import('./text/bench-llm.js')).addBenchLlm,
  },
  embed: {
    usage: '[options] <model> [texts...]',
    description: 'make vectors of texts, or show how similar texts are',
    load: async () => (await import('./text/embed.js')).addEmbed,
  },
  chat: {
    usage: '[options] <model> [message]',
    description: 'talk with a language model',
    load: async () => (await import('./text/chat.js')).addChat,
  },
  generate: {
    usage: '[options] <model> [text]',
    description: 'continue a text with a language model',
    load: async () => (await import('./text/generate.js')).addGenerate,
  },
  finetune: {
    usage: '[options]',
    description: 'train an adapter on an ONNX model, or the model itself',
    load: async () => (await import('./finetune.js')).addFinetune,
  },
  demo: {
    usage: '[options]',
    description:
      'adapt a digit classifier to photographic negatives, or any ONNX model to itself; merge; export',
    load: async () => (await import('./demo.js')).addDemo,
  },
  merge: {
    usage: '[options] <model> <adapters...>',
    description: 'fold adapters into the weights of an ONNX model: a plain model that runs anywhere',
    load: async () => (await import('./merge.js')).addMerge,
  },
  quantize: {
    usage: '[options] <model>',
    description: 'store the matrices of an ONNX model in NVFP4 or FP8',
    load: async () => (await import('./quantize.js')).addQuantize,
  },
  up: {
    usage: '[options]',
    description: 'run this machine as a node of a cluster, which it begins or joins the first time',
    load: async () => (await import('./cluster/up.js')).addUp,
  },
  node: {
    usage: '[options]',
    description: 'show who this machine is in its cluster, and the devices that it has seen',
    load: async () => (await import('./cluster/node.js')).addNode,
  },
  links: {
    usage: '[options]',
    description: 'show how fast and how good the links to the other nodes of the cluster are',
    load: async () => (await import('./cluster/links.js')).addLinks,
  },
  place: {
    usage: '[options] [model]',
    description:
      'put the layers of a model on the devices of several machines; show stage times and what would help',
    load: async () => (await import('./cluster/place.js')).addPlace,
  },
  service: {
    usage: '',
    description: 'install or remove the systemd unit that keeps a node of a cluster running',
    load: async () => (await import('./cluster/service.js')).addService,
  },
  simulate: {
    usage: '[options]',
    description: 'run driving scenarios with an algorithm, or compare two of them; write a page of it',
    load: async () => (await import('./simulate/simulate.js')).addSimulate,
  },
  'openpilot-model': {
    usage: '[options] <name>',
    description: 'write a driving model of openpilot with random weights, for tests and benchmarks',
    load: async () => (await import('./openpilot-model.js')).addOpenpilotModel,
  },
  invite: {
    usage: '[options]',
    description: 'print a code with which another machine joins the cluster of this node',
    load: async () => (await import('./cluster/invite.js')).addInvite,
  },
  token: {
    usage: '',
    description: 'make, revoke and list tokens: what a tenant may do on the GPUs of the cluster',
    load: async () => (await import('./cluster/token.js')).addToken,
  },
  audit: {
    usage: '',
    description: 'verify or show the audit log of a node',
    load: async () => (await import('./cluster/audit.js')).addAudit,
  },
  adapter: {
    usage: '',
    description: "look into adapter folders in PEFT's format",
    load: async () => (await import('./adapter.js')).addAdapter,
  },
  data: {
    usage: '',
    description: 'list, read and download recorded drives: routes of openpilot, comma2k19',
    load: async () => (await import('./data/data.js')).addData,
  },
}

/**
 * The command line tool. It throws CommanderError instead of ending the process.
 * @param words - the command line: commands that it names get their options and actions. Default: all of them do
 */
export async function createProgram(words: readonly string[] = Object.keys(commands)): Promise<Command> {
  const program = new Command('dgx-spark')
  program
    .description(
      'GPU machine learning for Node.js: run, fine-tune, merge and quantize ONNX models; look at the machine.',
    )
    .version(packageVersion(), '-v, --version')
    .helpCommand(false)
    .configureHelp(helpStyle)
    .configureOutput({ ...commanderOutput, outputError: writeUsageError })
    .exitOverride()
  withExamples(
    program,
    'dgx-spark run model.onnx',
    'dgx-spark inspect model.onnx',
    'dgx-spark help adapter diff',
  )
  program.addHelpText('after', exitCodes)
  for (const [name, { usage, description, load }] of Object.entries(commands)) {
    const command = withTerm(program.command(name), `${name} ${usage}`.trim()).description(description)
    if (words.includes(name)) (await load())(command)
  }
  addHelp(program)
  return program
}

/** `dgx-spark help adapter diff` and `dgx-spark version`, as other tools have them. */
function addHelp(program: Command): void {
  withExamples(
    program
      .command('help')
      .description('show what a command does and its options')
      .argument('[command...]', 'such as run, or adapter diff')
      .action((names: string[]) => {
        let command = program
        for (const name of names) {
          const inner = command.commands.find(each => each.name() === name)
          if (!inner) return command.error(`error: unknown command '${[...names].join(' ')}'`)
          command = inner
        }
        command.outputHelp()
      }),
    'dgx-spark help run',
    'dgx-spark help adapter diff',
  )
  program
    .command('version', { hidden: true })
    .description('print the version')
    .action(() => print(packageVersion()))
}
