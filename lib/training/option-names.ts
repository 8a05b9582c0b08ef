// option-names.ts: names of the options of a trainer and of its trainings.
import { expectKnownOptions } from '../core/checks.js'
import { SparkError } from '../core/errors.js'

/** Options of a training that need validation data. */
export const validationOptions = [
  'validateEvery',
  'metrics',
  'monitor',
  'mode',
  'patience',
  'minDelta',
  'keepBest',
] as const

const dataOptions = ['epochs', 'batchSize', 'accumulate', 'seed', 'shuffle', 'teacher']
const updateOptions = ['loss', 'optimizer', 'schedule', 'maxNorm', 'precision']
const runOptions = [
  'trainable',
  'checkpoint',
  'resume',
  'memoryBudget',
  'log',
  'signal',
  'backend',
  'device',
  'exchange',
]

const names: Readonly<Record<'new Trainer' | 'trainer.fit', readonly string[]>> = {
  'new Trainer': [...dataOptions, ...updateOptions, ...runOptions],
  'trainer.fit': ['onStep', 'onValidation', 'validation', ...validationOptions],
}

/**
 * Throws ERR_ARGUMENT for an option that `owner` does not have; the message says so where the other one has it.
 */
export function expectOwnOptions(owner: keyof typeof names, options: object): void {
  const other = owner === 'new Trainer' ? 'trainer.fit' : 'new Trainer'
  const misplaced = Object.keys(options ?? {}).find(
    name => names[other].includes(name) && !names[owner].includes(name),
  )
  if (misplaced !== undefined)
    throw new SparkError('ERR_ARGUMENT', `${owner} has no option '${misplaced}': give it to ${other}`)
  expectKnownOptions('options', options, names[owner])
}
