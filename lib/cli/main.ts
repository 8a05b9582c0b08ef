#!/usr/bin/env node
import { Command, CommanderError } from 'commander'
import { SparkError } from '../core/errors.js'
import { packageVersion } from '../core/version.js'
import { addAdapter } from './adapter.js'
import { addCheck } from './check.js'
import { addDemo } from './demo.js'
import { addFinetune } from './finetune.js'
import { addInfo } from './info.js'
import { addInspect } from './inspect.js'
import { addMerge } from './merge.js'
import { addMonitor } from './monitor.js'
import { addOps } from './ops.js'
import { commanderOutput, printError } from './output.js'
import { addQuantize } from './quantize.js'
import { addRun } from './run.js'
import { addVerify } from './verify.js'

const exitCodes = `
Exit codes:
  0    all is well
  1    a check failed, a kernel disagrees with the reference, or the command could not do its work
  2    wrong usage
  130  interrupted with Ctrl-C`

const program = new Command('dgx-spark')
  .description(
    'GPU machine learning for Node.js: run, fine-tune, merge and quantize ONNX models; look at the machine.',
  )
  .version(packageVersion())
  .addHelpText('after', exitCodes)
  .showHelpAfterError()
  .configureOutput(commanderOutput)
  .exitOverride()

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
for (const add of commands) add(program)

// A reader that goes away (dgx-spark monitor | head) is not a failure.
process.stdout.on('error', error => {
  process.exit((error as NodeJS.ErrnoException).code === 'EPIPE' ? 0 : 1)
})

program.parseAsync().catch((error: unknown) => {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : 2
    return
  }
  const message = error instanceof Error ? error.message : String(error)
  printError(error instanceof SparkError ? `${message} [${error.code}]` : message)
  process.exitCode = 1
})
