// budget.ts: bounds of what a template may do, so that none can hang or fill the memory; and the errors of templates.

/** An error of a template; `raised` by the template itself. */
export class TemplateError extends Error {
  readonly kind: 'raised' | 'limit' | 'failed'

  constructor(message: string, kind: TemplateError['kind'] = 'failed') {
    super(message)
    this.kind = kind
  }
}

/** Evaluations of nodes; characters and items looked at or made; calls of macros inside of each other. */
export const templateLimits = { steps: 5_000_000, units: 100_000_000, depth: 100 }

/** What an item that is written or compared costs, in characters. */
export const itemUnits = 40

/** What is left of the limits for the rendering that runs: it is synchronous, so there is one at a time. */
const left = { steps: 0, units: 0, depth: 0 }

/** Begins a rendering. */
export function resetBudget(): void {
  Object.assign(left, templateLimits)
}

/** Counts evaluations. */
export function countSteps(steps: number): void {
  left.steps -= steps
  if (left.steps < 0) throw new TemplateError(`it took more than ${templateLimits.steps} steps`, 'limit')
}

/** Counts characters or items that are about to be read or made. */
export function countUnits(units: number): void {
  left.units -= units
  if (!(left.units >= 0))
    throw new TemplateError(`it handled more than ${templateLimits.units} characters`, 'limit')
}

/** Runs a macro. */
export function countDepth<T>(run: () => T): T {
  if (--left.depth < 0)
    throw new TemplateError(`macros call each other more than ${templateLimits.depth} deep`, 'limit')
  try {
    return run()
  } finally {
    left.depth++
  }
}
