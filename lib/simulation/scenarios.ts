// scenarios.ts: scenarios that are given are read; those that are wrong are named, and the others run.
import type { ErrorObject, ValidateFunction } from 'ajv/dist/2020.js'
import { argumentError, expectObject } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import type { ScenarioStart, World } from './world.js'

/** A scenario that could not run. */
export interface FailedScenario {
  /** Its index in the list. */
  readonly index: number
  /** Its name, where it has one. */
  readonly name: string
  /** Why. */
  readonly error: SparkError
}

/** A scenario that can run. */
export interface ReadScenario {
  /** How many steps it has. */
  readonly steps: number
  /** How it begins. */
  readonly start: () => ScenarioStart
}

/** Scenarios that can run, by their index in the list, and those that cannot. */
export interface ReadScenarios {
  readonly starts: ReadonlyMap<number, ReadScenario>
  readonly failed: readonly FailedScenario[]
}

const validators = new WeakMap<object, ValidateFunction>()

/** Scenarios whose beginnings are kept: those of more are made once more when they run. */
const mostKept = 4096

/**
 * Reads scenarios of a world.
 * @throws SparkError ERR_ARGUMENT when it is no list
 */
export async function readScenarios<S>(
  world: World<S>,
  scenarios: readonly S[],
  pacer = new Pacer(),
): Promise<ReadScenarios> {
  if (!Array.isArray(scenarios)) throw argumentError('scenarios', 'a list of scenarios', scenarios)
  const isValid = await validatorOf(world)
  const starts = new Map<number, ReadScenario>()
  const failed: FailedScenario[] = []
  for (const [index, scenario] of scenarios.entries()) {
    await pacer.pause()
    const { name: given } = (scenario ?? {}) as { readonly name?: unknown }
    const name = typeof given === 'string' ? given : `scenario ${index}`
    try {
      const label = `scenario ${index}${typeof given === 'string' ? ` '${given}'` : ''}`
      expectObject(label, 'an object', scenario)
      if (!isValid(scenario)) throw schemaError(label, scenario, isValid.errors!)
      const begin = (): ScenarioStart => {
        const start = world.begin(scenario as S)
        return typeof given === 'string' ? start : { ...start, name }
      }
      const start = begin()
      starts.set(index, {
        steps: start.steps,
        start: scenarios.length > mostKept ? begin : () => start,
      })
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      failed.push({ index, name, error })
    }
  }
  return { starts, failed }
}

async function validatorOf({ schema }: Pick<World, 'schema'>): Promise<ValidateFunction> {
  const known = validators.get(schema)
  if (known) return known
  const { Ajv2020 } = await import('ajv/dist/2020.js')
  const validate = new Ajv2020({ allowUnionTypes: true }).compile(schema)
  validators.set(schema, validate)
  return validate
}

function schemaError(label: string, scenario: unknown, errors: readonly ErrorObject[]): SparkError {
  // Of a value that may be of several forms the errors about each of them come first.
  const { instancePath, keyword, params, message } =
    errors.find(each => each.keyword === 'anyOf') ?? errors[0]!
  const path = instancePath.split('/').slice(1)
  const value = path.reduce<unknown>((inner, key) => (inner as Record<string, unknown>)?.[key], scenario)
  const field = [label, ...path].join('.')
  if (keyword === 'required')
    return new SparkError('ERR_ARGUMENT', `${field} lacks '${params.missingProperty}'`)
  if (keyword === 'additionalProperties')
    return new SparkError(
      'ERR_ARGUMENT',
      `${field} has a field '${params.additionalProperty}', which is not known`,
    )
  const wanted =
    keyword === 'anyOf' ? 'a number, or a list of pairs [x, value]' : (message ?? '').replace(/^must be /, '')
  return argumentError(field, wanted, value)
}
