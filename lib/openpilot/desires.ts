// desires.ts: what drivers intend.

/** What drivers intend, in the order in which models read it. */
export const desires = [
  'none',
  'turnLeft',
  'turnRight',
  'laneChangeLeft',
  'laneChangeRight',
  'keepLeft',
  'keepRight',
] as const
