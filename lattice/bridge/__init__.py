"""The bridge between a lattice and the relay: actors call twins, twins call actors and providers.

to_twin     handles Twin.Call and Twin.Send of linked actors, as requests to twins
to_lattice  handles requests to the bridge's twin, as invocations
links       what the links with the bridge allow
policies    what operators allow, read from Redis
counts      counts of calls by outcome, for Redis
main        the process
"""
