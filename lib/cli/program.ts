// program.ts: all commands.
import { Command } from 'commander'
import { packageVersion } from '../core/version.js'
import { addAdapter } from './adapter.js'
import { addCheck } from './check.js'
import { helpStyle, withExamples, writeUsageError } from './command.js'
import { addDemo } from './demo.js'
import { addFinetune } from './finetune.js'
import { addInfo } from './info.js'
import { addInspect } from './inspect.js'
import { addMerge } from './merge.js'
import { addMonitor } from './monitor.js'
import { addOps } from './ops.js'
import { commanderOutput, print } from './output.js'
import { addQuantize } from './quantize.js'
import { addRun } from './run.js'
import { addVerify } from './verify.js'

const exitCodes = `
Exit codes:
  0    all is well
  1    a check failed, a kernel disagrees with the reference, or the command could not do its work
  2    wrong usage
  130  interrupted with Ctrl-C`

const commands = [
  addInfo,
  addCheck,
  addVerify,
  addMonitor,
  addInspect,
  addOps,
  addRun,
  addFinetune,
  addDemo,
  addMerge,
  addQuantize,
  addAdapter,
]

/** The command line tool. It throws CommanderError instead of ending the process. */
export function createProgram(): Command {
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
  for (const add of commands) add(program)
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
