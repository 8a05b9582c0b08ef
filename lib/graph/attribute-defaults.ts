// attribute-defaults.ts: attributes of operators of our own domain where a node leaves them out.

/** Hyperparameters of AdamW by the names of PyTorch's `torch.optim.AdamW`, which has the same defaults. */
export const adamwDefaults = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.01 } as const

type AdamWSettings = { readonly [Name in keyof typeof adamwDefaults]: number }

/** The hyperparameters that are given, and the defaults of the others. */
export function withAdamWDefaults(
  given: {
    readonly [Name in keyof AdamWSettings]?: number | undefined
  },
): AdamWSettings {
  const {
    beta1 = adamwDefaults.beta1,
    beta2 = adamwDefaults.beta2,
    epsilon = adamwDefaults.epsilon,
    weightDecay = adamwDefaults.weightDecay,
  } = given
  return { beta1, beta2, epsilon, weightDecay }
}
