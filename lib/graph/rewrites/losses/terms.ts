// terms.ts: what a training loss is made of. Values are named as in the graph; a target that is no value of the graph
// becomes an input of that name.

/** What all terms have. */
export interface WeightedTerm {
  /** Factor of the term in the sum. Default: 1. */
  readonly weight?: number
}

/** Terms that compare one output with one target. */
export interface PairTerm extends WeightedTerm {
  /**
   * `cross-entropy`: mean of −log softmax(output)[target], for scores [N, …, C] and class numbers [N, …]. `nll`: the same
   * for logarithms of probabilities. `mse`, `l1`: mean of (output − target)² and of |output − target|. `kl`: Σ
   * softmax(target) · (log softmax(target) − log softmax(output)) over the last axis, divided by the first size.
   */
  readonly type: 'cross-entropy' | 'nll' | 'mse' | 'l1' | 'kl'
  /** Name of the value of the model. Default: its first output. */
  readonly output?: string
  /** Name of the value it should have. Default: the teacher's output of the same name, or `target` without a teacher. */
  readonly target?: string
}

/** The negative log likelihood of a target under the best of several hypotheses: the winner takes all. */
export interface HypothesesTerm extends WeightedTerm {
  /**
   * `laplacian-nll`: |mean − target| / std + log(2 · std). `gaussian-nll`: ((mean − target) / std)² / 2 + log(std), without
   * the constant. Summed over T and C; only the hypothesis with the smallest sum, the first of equal ones, counts; mean
   * over B.
   */
  readonly type: 'laplacian-nll' | 'gaussian-nll'
  /** Name of the means, [B, H, T, C]. */
  readonly mean: string
  /** Name of the scales, [B, H, T, C]. */
  readonly std: string
  /** [B, T, C]. Default: `target`. */
  readonly target?: string
  /** Smaller scales count as this and get no gradient. Default: 1e-6. */
  readonly epsilon?: number
}

/** Names of what a driving model predicts; [B, H, T, C] for the path. */
export interface PathValues {
  /** Means. */
  readonly pathMean?: string
  /** Not used of a target. */
  readonly pathStd?: string
  /** Scores of the hypotheses, [B, H]. */
  readonly pathProb?: string
  /** Of any shape. */
  readonly laneLines?: string
  /** Of any shape. */
  readonly roadEdges?: string
}

/**
 * A driving model against its teacher: pathWeight · Laplacian NLL of the teacher's path_mean[:, 0] + probWeight · KL of the
 * softmax of path_prob + laneWeight, edgeWeight · mean absolute errors. A part that either side lacks is left out.
 */
export interface PathTerm extends WeightedTerm {
  /** Which loss it is. */
  readonly type: 'path-distillation'
  /** Values of the model. */
  readonly outputs: PathValues
  /** Values of the teacher, or inputs. */
  readonly targets: PathValues
  /** Default: 1. */
  readonly pathWeight?: number
  /** Default: 0.1. */
  readonly probWeight?: number
  /** Default: 0.5. */
  readonly laneWeight?: number
  /** Default: 0.5. */
  readonly edgeWeight?: number
}

/**
 * Features of the model against those of its teacher: KL(softmax(teacher / T) ‖ softmax(student / T)) · T² over the last
 * axis, images [B, C, H, W] being seen as [B, C, H · W], divided by B.
 */
export interface FeatureTerm extends WeightedTerm {
  /** Which loss it is. */
  readonly type: 'feature-distillation'
  /** Name of the features of the model. */
  readonly output: string
  /** Default: the teacher's value of the same name. */
  readonly target?: string
  /** T. Default: 4. */
  readonly temperature?: number
}

/** One term of a loss. */
export type LossTerm = PairTerm | HypothesesTerm | PathTerm | FeatureTerm

/** A loss: the name of a pair term with its defaults, a term, or a weighted sum of terms. */
export type Loss = PairTerm['type'] | LossTerm | readonly LossTerm[]
