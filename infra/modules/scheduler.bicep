// A Durable Task Scheduler with the app's task hub, in place of the storage account's queues and tables.
param name string
param location string
param tags object

@description('Of the app\'s identity.')
param principalId string

@description('Capacity units of the Dedicated plan, 1 to 3; 0 = the Consumption plan.')
param units int

@description('Who may connect, as ranges; the role below is asked for either way. An empty list lets nobody in.')
param ipAllowlist array = ['0.0.0.0/0']

var roles = {
  taskHub: '0ad04412-c4d5-4796-b79c-f76d14c8d402' // Durable Task Data Contributor
}

resource scheduler 'Microsoft.DurableTask/schedulers@2025-11-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    sku: units == 0 ? { name: 'Consumption' } : { name: 'Dedicated', capacity: units }
    ipAllowlist: ipAllowlist
  }

  // Its name is `hubName` in host.json.
  resource hub 'taskHubs' = {
    name: 'DurableRetry'
  }
}

resource access 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(scheduler::hub.id, principalId, roles.taskHub)
  scope: scheduler::hub
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.taskHub)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output endpoint string = scheduler.properties.endpoint
