// world.ts: what a simulated world is: how scenarios begin in it, what an algorithm sees of it and does to it.
import type { Graph } from '../graph/graph.js'
import type { Traced } from './traced.js'

/** Values of a step by name, each [scenarios, columns] f32. */
export type TracedValues = Readonly<Record<string, Traced>>

/** Numbers of one scenario: one, or a row. */
export type Numbers = number | readonly number[]

/** How one scenario begins, and what happens in it whatever the algorithm does. */
export interface ScenarioStart {
  /** Its name. */
  readonly name: string
  /** How many steps it has. */
  readonly steps: number
  /** First values of the states. */
  readonly states: Readonly<Record<string, Numbers>>
  /** What stays. */
  readonly parameters: Readonly<Record<string, Numbers>>
  /** What changes by the clock alone: a number for each step. */
  readonly timeline: Readonly<Record<string, Float32Array>>
}

/** What a world is asked about: the values before a step. */
export interface WorldStep {
  /** By the names of {@link ScenarioStart.states}. */
  readonly states: TracedValues
  /** By the names of {@link ScenarioStart.parameters}. */
  readonly parameters: TracedValues
  /** Elements of {@link ScenarioStart.timeline} at this step. */
  readonly now: TracedValues
}

/** What an action leads to. */
export interface WorldChange {
  /** The next states; those that are left out stay. */
  readonly states: TracedValues
  /** What metrics are made of, and what trajectories show: one column each. */
  readonly measures: TracedValues
  /** Not 0 where a scenario ends, by the names of {@link World.endings}. */
  readonly ends?: TracedValues
}

/** A number about a whole scenario. */
export interface Metric {
  /** Its unit; '' for none. */
  readonly unit: string
  /** What the total begins with. */
  readonly start: number
  /** The total after a step, one column. */
  accumulate(total: Traced, measures: TracedValues): Traced
  /** The metric from the total; without it the total itself. */
  finish?(total: number, steps: number): number
}

/** The lowest and the highest value of an action. */
export type ActionRange = readonly [low: number, high: number]

/**
 * A world that scenarios take place in. `observe` and `advance` are called once: they write down what will be computed for all
 * scenarios at once, in each step.
 */
export interface World<S = unknown> {
  /** Its name, for messages. */
  readonly name: string
  /** Seconds from one step to the next. */
  readonly timeStep: number
  /** JSON schema (draft 2020-12) of its scenarios. */
  readonly schema: Readonly<Record<string, unknown>>
  /** What an algorithm may do. What it leaves out is 0, where 0 is allowed, else the lowest value. */
  readonly actions: Readonly<Record<string, ActionRange>>
  /** Names of what an algorithm sees, in the order in which models get them as columns. */
  readonly observations: readonly string[]
  /** Why scenarios end before their last step. */
  readonly endings: readonly string[]
  /** What is measured, by name. */
  readonly metrics: Readonly<Record<string, Metric>>
  /** How many agents a scenario has, each of which sees, acts and ends by itself. Default: 1. */
  readonly agents?: number
  /** A model that the world moves on by, in canonical form. */
  readonly model?: Graph
  /**
   * Reads a scenario. It may be given the same one any number of times.
   * @param agent - whose states these are, from 0 on; rows of agents of one scenario follow each other
   * @throws SparkError ERR_ARGUMENT naming the field that is wrong
   */
  begin(scenario: S, agent?: number): ScenarioStart
  /** What an algorithm sees, by the names of {@link World.observations}. */
  observe(step: WorldStep): TracedValues
  /** What becomes of the states. */
  advance(step: WorldStep, action: TracedValues, run?: RunModel): WorldChange
}

/** Adds {@link World.model} to the step: its outputs by name. */
export type RunModel = (inputs: TracedValues) => TracedValues
