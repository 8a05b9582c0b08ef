// activation-types.ts: what activations are rounded to before they are multiplied by weights.

/** What the rows of an activation are rounded to before a layer multiplies them; f32: nothing is rounded. */
export const activationTypes = ['f32', 'bf16', 'int8', 'nvfp4'] as const

/** One of {@link activationTypes}. */
export type ActivationType = (typeof activationTypes)[number]

/** Those that round. */
export type RoundedRows = Exclude<ActivationType, 'f32'>
