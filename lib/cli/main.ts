#!/usr/bin/env node
import module from 'node:module'
import { CommanderError } from 'commander'
import { SparkError } from '../core/errors.js'
import { UsageError } from './command.js'
import { printError } from './output.js'
import { createProgram } from './program.js'

// Node.js 22.8 and later keep what they compile of the commands.
;(module as { enableCompileCache?(): void }).enableCompileCache?.()

// A reader that goes away (dgx-spark monitor | head) is not a failure.
process.stdout.on('error', error => {
  process.exit((error as NodeJS.ErrnoException).code === 'EPIPE' ? 0 : 1)
})

createProgram(process.argv.slice(2))
  .then(program => program.parseAsync())
  .catch((error: unknown) => {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : 2
      return
    }
    const message = error instanceof Error ? error.message : String(error)
    printError(error instanceof SparkError ? `${message} [${error.code}]` : message)
    process.exitCode = error instanceof UsageError ? 2 : 1
  })
