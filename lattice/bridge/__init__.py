"""The bridge: actors call twins, and twins call actors and providers.

to_twin     Twin.Call and Twin.Send of linked actors, as requests to twins
to_lattice  requests to the bridge's twin, as invocations
links       what links with the bridge allow
policies    what operators allow, read from Redis
counts      what passed and what did not, for Redis
main        the process
"""
